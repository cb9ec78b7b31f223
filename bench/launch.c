/* launch.c - runs this program again as a child of its own on a chosen allocator.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
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
static _Noreturn void become_child(int input, int result, char *const *arguments,
                                   char *const *environment)
{
    /* Out of the way first: either may be the number that the other is to have. */
    if (input >= 0)
        input = fcntl(input, F_DUPFD_CLOEXEC, LAUNCH_RESULT_FILE + 1);
    result = fcntl(result, F_DUPFD_CLOEXEC, LAUNCH_RESULT_FILE + 1);
    if (result >= 0 && dup2(result, LAUNCH_RESULT_FILE) >= 0 &&
        (input < 0 || dup2(input, LAUNCH_INPUT_FILE) >= 0))
        execve("/proc/self/exe", arguments, environment);
    _exit(127);
}

static int start_child(const struct replay_allocator *allocator, const char *const *arguments,
                       int input, int result, pid_t *child)
{
    char preload[sizeof allocator->library + 16] = "";
    if (allocator->library[0])
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", allocator->library);
    char *all[LAUNCH_ARGUMENTS_MAX + 2] = {(char *)"slate"};
    for (size_t i = 0; i < LAUNCH_ARGUMENTS_MAX && arguments[i]; i++)
        all[i + 1] = (char *)arguments[i];
    char **environment = child_environment(allocator, preload);
    if (!environment)
        return -1;
    *child = fork();
    if (*child == 0)
        become_child(input, result, all, environment);
    free(environment);
    return *child < 0 ? -1 : 0;
}

int launch_child(const struct replay_allocator *allocator, const char *const *arguments, int input,
                 void *result, size_t bytes, int *status)
{
    pid_t child = -1;
    void *page = MAP_FAILED;
    int code = -1;
    int file = memfd_create("slate-result", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED && start_child(allocator, arguments, input, file, &child) == 0) {
        pid_t waited;
        do {
            waited = waitpid(child, status, 0);
        } while (waited < 0 && errno == EINTR);
        memcpy(result, page, bytes);
        code = 0;
    }
    int error = errno;
    if (page != MAP_FAILED)
        munmap(page, bytes);
    if (file >= 0)
        close(file);
    errno = error;
    return code;
}

const char *launch_kind(const struct replay_allocator *allocator)
{
    static const char *const kinds[] = {
        [KIND_FLOOR] = "floor",     [KIND_MALLOC] = "malloc", [KIND_SLATE] = "slate",
        [KIND_CALL] = "call",       [KIND_REGION] = "region", [KIND_APR] = "apr",
        [KIND_OBSTACK] = "obstack", [KIND_SLAB] = "slab",     [KIND_TALLOC] = "talloc"};
    return kinds[allocator->kind];
}

void launch_describe_end(int status, char *what, size_t room)
{
    if (WIFSIGNALED(status))
        snprintf(what, room, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(what, room, "ended early with exit code %d", WEXITSTATUS(status));
}
