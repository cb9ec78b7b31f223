/* replay_run.c - runs one (trace, allocator) in a child process: this program again, with the
 * allocator preloaded.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "replay_run.h"

#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Whether `setting` (NAME=VALUE) sets the variable of `other`. */
static bool same_name(const char *setting, const char *other)
{
    size_t length = strcspn(setting, "=");
    return strncmp(setting, other, length) == 0 && other[length] == '=';
}

/* The environment of the child: ours without what would preload or tune another allocator, and with
 * its settings. `preload` is where LD_PRELOAD=... stands, or empty.  The array is the caller's to
 * free. */
static char **child_environment(const struct replay_allocator *allocator, char *preload)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **result = malloc((count + SETTINGS_MAX + 2) * sizeof *result);
    if (!result)
        return NULL;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        bool keep =
            !same_name("LD_PRELOAD=", environ[i]) && !same_name("GLIBC_TUNABLES=", environ[i]);
        for (int k = 0; allocator->settings[k]; k++)
            keep = keep && !same_name(allocator->settings[k], environ[i]);
        if (keep)
            result[used++] = environ[i];
    }
    for (int k = 0; allocator->settings[k]; k++)
        result[used++] = allocator->settings[k];
    if (*preload)
        result[used++] = preload;
    result[used] = NULL;
    return result;
}

/* The child's end: only calls that are safe after fork. */
static _Noreturn void become_child(int trace_file, int result_file, char *const *arguments,
                                   char *const *environment)
{
    /* Out of the way first: either may be the number that the other is to have. */
    int trace = fcntl(trace_file, F_DUPFD_CLOEXEC, REPLAY_RESULT_FILE + 1);
    int result = fcntl(result_file, F_DUPFD_CLOEXEC, REPLAY_RESULT_FILE + 1);
    if (trace >= 0 && result >= 0 && dup2(trace, REPLAY_TRACE_FILE) >= 0 &&
        dup2(result, REPLAY_RESULT_FILE) >= 0)
        execve("/proc/self/exe", arguments, environment);
    _exit(127);
}

static int start_child(const struct replay_trace *trace, const struct replay_allocator *allocator,
                       bool check_all, int result_file, pid_t *child)
{
    static const char *const kinds[] = {[KIND_FLOOR] = "floor",
                                        [KIND_MALLOC] = "malloc",
                                        [KIND_SLATE] = "slate",
                                        [KIND_CALL] = "call"};
    char preload[sizeof allocator->library + 16] = "";
    if (allocator->library[0])
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", allocator->library);
    char **environment = child_environment(allocator, preload);
    if (!environment)
        return -1;
    char *arguments[] = {(char *)"slate",
                         (char *)"replay-child",
                         (char *)kinds[allocator->kind],
                         (char *)(check_all ? "1" : "0"),
                         (char *)allocator->library,
                         NULL};
    *child = fork();
    if (*child == 0)
        become_child(trace->file, result_file, arguments, environment);
    free(environment);
    return *child < 0 ? -1 : 0;
}

/* Says in `what` why a child that ended with `status` did not finish. */
static void describe_failure(const struct replay_result *result, const char *path, int status,
                             char *what, size_t room)
{
    uint64_t record = result->word ? replay_record_at(path, result->word) : 0;
    switch (result->status) {
    case REPLAY_CHANGED:
        snprintf(what, room,
                 "record %" PRIu64 ": block at 0x%" PRIx64 " of %" PRIu64 " bytes changed", record,
                 result->address, result->size);
        return;
    case REPLAY_NOT_ZERO:
        snprintf(what, room,
                 "record %" PRIu64 ": block at 0x%" PRIx64 " of %" PRIu64 " bytes is not all zero",
                 record, result->address, result->size);
        return;
    case REPLAY_MISALIGNED:
        snprintf(what, room, "record %" PRIu64 ": block at 0x%" PRIx64 " is not aligned as asked",
                 record, result->address);
        return;
    case REPLAY_NO_MEMORY:
        snprintf(what, room, "record %" PRIu64 ": no memory for %" PRIu64 " bytes", record,
                 result->size);
        return;
    case REPLAY_NOT_PRELOADED:
        snprintf(what, room, "its library was not loaded or has no malloc (malloc is %s's)",
                 result->version);
        return;
    case REPLAY_SETUP_FAILED:
        snprintf(what, room, "set-up failed: %s", strerror(result->error));
        return;
    default:
        break;
    }
    if (WIFSIGNALED(status))
        snprintf(what, room, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(what, room, "ended early with exit code %d", WEXITSTATUS(status));
}

int replay_run(const struct replay_trace *trace, const char *path, const char *name,
               const struct replay_allocator *allocator, bool check_all,
               struct replay_result *result, char *message, size_t room)
{
    char what[400] = "";
    int status = 0;
    pid_t child = -1;
    struct replay_result *page = MAP_FAILED;
    int file = memfd_create("slate-replay-result", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, sizeof *page) == 0)
        page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED && start_child(trace, allocator, check_all, file, &child) == 0) {
        pid_t waited;
        do {
            waited = waitpid(child, &status, 0);
        } while (waited < 0 && errno == EINTR);
        page->version[sizeof page->version - 1] = '\0';
        *result = *page;
        if (result->status != REPLAY_DONE || status != 0)
            describe_failure(result, path, status, what, sizeof what);
    } else {
        snprintf(what, sizeof what, "the child could not be started: %s", strerror(errno));
    }
    if (page != MAP_FAILED)
        munmap(page, sizeof *page);
    if (file >= 0)
        close(file);
    if (!what[0])
        return 0;
    snprintf(message, room, "trace %s, allocator %s: %s", name, allocator->label, what);
    return -1;
}
