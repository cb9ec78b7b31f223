/* real_run.c - runs a whole program once on a chosen allocator.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the program's process ---- */

/* The program's end if it cannot be run: `report` gets errno. */
static _Noreturn void become_program(const struct real_program *program,
                                     const struct replay_allocator *allocator, int out, int errors,
                                     int report)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool good = nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
                dup2(errors, STDERR_FILENO) >= 0 && unsetenv("LD_PRELOAD") == 0 &&
                unsetenv("GLIBC_TUNABLES") == 0;
    for (char **setting = program->settings; good && *setting; setting++)
        good = putenv(*setting) == 0;
    for (int i = 0; good && allocator->settings[i]; i++)
        good = putenv(allocator->settings[i]) == 0;
    if (good && allocator->library[0])
        good = setenv("LD_PRELOAD", allocator->library, 1) == 0;
    if (good && (!program->directory || chdir(program->directory) == 0))
        execvp(program->command[0], program->command);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(127);
}

/* ---- its end ---- */

static volatile sig_atomic_t group; /* the running program's process group; 0: none */
static volatile sig_atomic_t timed_out;

static void on_alarm(int signal)
{
    (void)signal;
    timed_out = 1;
    if (group)
        kill(-group, SIGKILL);
}

/* The program is in a group of its own, so that all of it can be ended. */
static void on_end(int number)
{
    if (group)
        kill(-group, SIGKILL);
    signal(number, SIG_DFL);
    raise(number);
}

static void set_handlers(void)
{
    struct sigaction alarmed = {.sa_handler = on_alarm}, end = {.sa_handler = on_end};
    sigaction(SIGALRM, &alarmed, NULL);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

/* ---- what came out ---- */

/* FNV-1a over the file, from `sum` on; false if it cannot be read. */
static bool add_to_sum(int file, uint64_t *sum)
{
    static unsigned char bytes[1 << 16];
    ssize_t got;
    while ((got = read(file, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < got; i++)
            *sum = (*sum ^ bytes[i]) * 0x100000001b3;
    return got == 0;
}

/* Returns false with what is wrong in `what`. */
static bool sum_up(const struct real_program *program, int out, uint64_t *sum, char *what,
                   size_t room)
{
    *sum = 0xcbf29ce484222325;
    if (strcmp(program->check, "-") == 0)
        return true;
    int file = -1;
    bool is_file = strcmp(program->check, "stdout") != 0;
    if (is_file)
        file = open(program->check, O_RDONLY | O_CLOEXEC);
    else
        lseek(out, 0, SEEK_SET);
    bool good = (!is_file || file >= 0) && add_to_sum(is_file ? file : out, sum);
    if (!good)
        snprintf(what, room, "%s: %s", program->check, strerror(errno));
    if (file >= 0)
        close(file);
    return good;
}

/* The last line of what the program wrote, on stderr if there is any, behind the text in `what`. */
static void add_last_line(const int files[2], char *what, size_t room)
{
    char text[1024];
    ssize_t length = 0;
    for (int i = 1; i >= 0 && length <= 0; i--) {
        off_t end = lseek(files[i], 0, SEEK_END);
        off_t start = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
        length = pread(files[i], text, sizeof text - 1, start);
        while (length > 0 && strchr("\n ", text[length - 1]))
            length--;
    }
    if (length <= 0)
        return;
    text[length] = '\0';
    char *line = strrchr(text, '\n');
    size_t used = strlen(what);
    snprintf(what + used, room - used, ": %.200s", line ? line + 1 : text);
}

/* ---- a run ---- */

/* Waits for the program, at most `seconds`. */
static int wait_for(pid_t process, long seconds, struct rusage *usage)
{
    int status = 0;
    timed_out = 0;
    alarm((unsigned)seconds);
    while (wait4(process, &status, 0, usage) < 0 && errno == EINTR) {
    }
    alarm(0);
    return status;
}

/* Returns the wait status; or -1 with errno when it could not be run. */
static int run(const struct real_program *program, const struct replay_allocator *allocator,
               long seconds, const int files[2], struct real_result *result)
{
    int report[2], error = 0, status = 0;
    struct rusage usage = {0};
    if (pipe2(report, O_CLOEXEC) < 0)
        return -1;
    set_handlers();
    double start = now();
    /* Not vfork: the new process's peak would begin at this one's. */
    pid_t process = fork();
    if (process == 0) {
        setpgid(0, 0);
        become_program(program, allocator, files[0], files[1], report[1]);
    }
    error = process < 0 ? errno : 0;
    close(report[1]);
    if (process > 0) {
        setpgid(process, process);
        group = process;
        status = wait_for(process, seconds, &usage);
        result->wall_seconds = now() - start;
        group = 0;
        ssize_t got = read(report[0], &error, sizeof error);
        (void)got; /* 0 bytes: it was run */
        /* What it left running must not disturb the next run. */
        kill(-process, SIGKILL);
    }
    close(report[0]);
    result->user_seconds = seconds_of(usage.ru_utime);
    result->system_seconds = seconds_of(usage.ru_stime);
    result->resident_kb = (uint64_t)usage.ru_maxrss;
    result->minor_faults = (uint64_t)usage.ru_minflt;
    result->major_faults = (uint64_t)usage.ru_majflt;
    errno = error;
    return error ? -1 : status;
}

int real_run(const struct real_program *program, const struct replay_allocator *allocator,
             long seconds, struct real_result *result, char *what, size_t room)
{
    int files[2] = {memfd_create("slate-out", MFD_CLOEXEC),
                    memfd_create("slate-errors", MFD_CLOEXEC)};
    int code = -1, status = -1;
    if (program->check[0] == '/')
        unlink(program->check);
    if (files[0] >= 0 && files[1] >= 0)
        status = run(program, allocator, seconds, files, result);
    if (status == -1) {
        snprintf(what, room, "%s: %s", program->command[0], strerror(errno));
    } else if (timed_out) {
        snprintf(what, room, "was ended after %ld seconds", seconds);
    } else if (WIFSIGNALED(status)) {
        snprintf(what, room, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
        add_last_line(files, what, room);
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(what, room, "exit status %d", WEXITSTATUS(status));
        add_last_line(files, what, room);
    } else if (sum_up(program, files[0], &result->sum, what, room)) {
        code = 0;
    }
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0)
            close(files[i]);
    return code;
}
