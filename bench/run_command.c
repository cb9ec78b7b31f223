/* run_command.c - `slate run`: runs a command with slate in malloc's place.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "commands.h"
#include "run_library.h"

#include <slate.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What shells answer for a command that cannot be run. */
enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

static const char help_text[] =
    "usage: slate run [OPTION]... [--] COMMAND [ARGUMENT]...\n"
    "Runs COMMAND, and all that it starts, with slate in malloc's place.\n"
    "\n"
    "  --policy POLICY   page policy: never, always, switch or shared (SLATE_POLICY)\n"
    "  --switch BYTES    switch point, as 8M (SLATE_SWITCH)\n"
    "  --stats           afterwards, on stderr: what each process used of slate (SLATE_STATS),\n"
    "                    and times, memory and faults of the whole\n"
    "  -h, --help        print this and stop\n"
    "\n"
    "Settings of slate in the environment hold too. The exit status is COMMAND's, 128 and the\n"
    "signal's number if one killed it, 126 if it cannot be run, 127 if it is not there.\n";

/* ---- options ---- */

/* Takes a setting over into the environment.  Returns 0; or -1 after a complaint. */
static int set(const char *option, const char *name, const char *value)
{
    /* Nothing has been allocated from slate yet, so the library itself can say what it takes. */
    if (slate_tune(name, value) == 0)
        return setenv(name, value, 1);
    size_t count;
    const struct slate_tunable *tunables = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(tunables[i].name, name) == 0)
            complain("run: %s \"%s\": allowed is %s", option, value, tunables[i].range);
    return -1;
}

/* Returns -1 to go on, or the exit code. */
static int parse_options(int argc, char **argv, bool *stats)
{
    static const struct option known[] = {{"policy", required_argument, NULL, 'p'},
                                          {"switch", required_argument, NULL, 's'},
                                          {"stats", no_argument, NULL, 'S'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option;
    opterr = 0;
    /* "+": what is behind the command is the command's. */
    for (int at = optind; (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1;
         at = optind) {
        switch (option) {
        case 'p':
            if (set("--policy", "SLATE_POLICY", optarg) < 0)
                return EXIT_USAGE;
            break;
        case 's':
            if (set("--switch", "SLATE_SWITCH", optarg) < 0)
                return EXIT_USAGE;
            break;
        case 'S':
            *stats = true;
            break;
        case 'h':
            fputs(help_text, stdout);
            return EXIT_GOOD;
        case ':':
            complain("run: option %s wants a value", argv[optind - 1]);
            return EXIT_USAGE;
        default:
            complain("run: unknown option \"%s\"; slate run --help lists them", argv[at]);
            return EXIT_USAGE;
        }
    }
    return -1;
}

/* ---- the command ---- */

/* Puts the library before what is preloaded already.  Returns 0, or -1 with errno. */
static int preload(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    if (!others || !*others)
        return setenv("LD_PRELOAD", library, 1);
    size_t length = strlen(library);
    if (strncmp(others, library, length) == 0 && strchr(": ", others[length]))
        return 0; /* run by slate run itself */
    char *both;
    if (asprintf(&both, "%s:%s", library, others) < 0) {
        errno = ENOMEM;
        return -1;
    }
    int result = setenv("LD_PRELOAD", both, 1);
    free(both);
    return result;
}

/* Returns the exit code for a command that could not be run. */
static int not_run(const char *command, int error)
{
    complain("run: %s: %s", command, strerror(error));
    return error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static volatile sig_atomic_t child;

static void pass_on(int signal) { kill(child, signal); }

/* What comes from the terminal reaches the command as well; what is sent to this process is meant
 * for it. */
static void set_signals(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pass = {.sa_handler = pass_on};
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGQUIT, &ignore, NULL);
    sigaction(SIGTERM, &pass, NULL);
    sigaction(SIGHUP, &pass, NULL);
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Runs the command as a child.  Returns its wait status, or -1 and errno if it could not be run. */
static int run_child(char **command, struct rusage *usage)
{
    int report[2], error = 0, status = 0;
    if (pipe2(report, O_CLOEXEC) < 0)
        return -1;
    sigset_t all, before;
    sigfillset(&all);
    /* No signal may come while `child` is not what it is to be. */
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t started = fork();
    if (started == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(command[0], command);
        error = errno;
        ssize_t written = write(report[1], &error, sizeof error);
        (void)written;
        _exit(EXIT_NOT_FOUND);
    }
    error = started < 0 ? errno : 0;
    close(report[1]);
    if (started > 0) {
        child = started;
        set_signals();
        sigprocmask(SIG_SETMASK, &before, NULL);
        ssize_t got;
        do {
            got = read(report[0], &error, sizeof error);
        } while (got < 0 && errno == EINTR);
        while (wait4(started, &status, 0, usage) < 0 && errno == EINTR) {
        }
    }
    close(report[0]);
    errno = error;
    return error ? -1 : status;
}

static int run_with_stats(char **command)
{
    const char *form = getenv("SLATE_STATS");
    struct rusage usage = {0};
    if ((!form || strcmp(form, "json") != 0) && setenv("SLATE_STATS", "1", 1) < 0)
        return not_run(command[0], errno);
    double start = now();
    int status = run_child(command, &usage);
    if (status == -1)
        return not_run(command[0], errno);
    fprintf(stderr,
            "slate: run: user %.3f s, system %.3f s, wall %.3f s, peak RSS %.1f MiB (of the "
            "largest process), %ld minor faults, %ld major\n",
            seconds(usage.ru_utime), seconds(usage.ru_stime), now() - start,
            (double)usage.ru_maxrss / 1024, usage.ru_minflt, usage.ru_majflt);
    if (WIFSIGNALED(status))
        return EXIT_SIGNAL + WTERMSIG(status);
    return WEXITSTATUS(status);
}

int command_run(int argc, char **argv)
{
    bool stats = false;
    int code = parse_options(argc, argv, &stats);
    if (code >= 0)
        return code;
    char **command = argv + optind;
    if (!*command) {
        complain("run: a command is missing; slate run --help says more");
        return EXIT_USAGE;
    }
    char library[PATH_MAX], message[PATH_MAX + 256];
    if (run_find_library(library, message, sizeof message) < 0) {
        complain("run: %s", message);
        return EXIT_FAILED;
    }
    if (preload(library) < 0) {
        complain("run: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (stats)
        return run_with_stats(command);
    execvp(command[0], command);
    return not_run(command[0], errno);
}
