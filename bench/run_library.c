/* run_library.c - where the library is that puts slate in malloc's place.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "run_library.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Without the development files there is only the name with the interface's version. */
static const char *const names[] = {"libslate-malloc.so", "libslate-malloc.so.0"};

static bool is_in(const char *folder, char *found)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < (int)sizeof path &&
            access(path, R_OK) == 0 && realpath(path, found))
            return true;
    return false;
}

/* SLATE_LIBDIR as seen from SLATE_BINDIR: an installed tree may have been moved as a whole. */
static bool is_beside(const char *own, char *found)
{
    static const char bin[] = SLATE_BINDIR, lib[] = SLATE_LIBDIR;
    size_t common = 0;
    for (size_t i = 0; bin[i] == lib[i]; i++) {
        if (bin[i] == '/')
            common = i;
        if (!bin[i])
            return is_in(own, found);
    }
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s", own);
    for (size_t i = common; bin[i]; i++)
        if (bin[i] == '/' && length < (int)sizeof folder)
            length += snprintf(folder + length, sizeof folder - (size_t)length, "/..");
    return length < (int)sizeof folder &&
           snprintf(folder + length, sizeof folder - (size_t)length, "%s", lib + common) <
               (int)sizeof folder - length &&
           is_in(folder, found);
}

int run_find_library(char *found, char *message, size_t room)
{
    char own[PATH_MAX], build[PATH_MAX + 16];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    snprintf(build, sizeof build, "%s/../lib/.libs", own);
    if (!(slash && (is_in(build, found) || is_beside(own, found) || is_in(own, found))) &&
        !is_in(SLATE_LIBDIR, found)) {
        snprintf(message, room, "%s is neither beside this program (%.200s) nor in %.200s",
                 names[0], own, SLATE_LIBDIR);
        return -1;
    }
    /* LD_PRELOAD takes these for separators. */
    if (strpbrk(found, " :")) {
        snprintf(message, room, "%.400s: a name with a space or colon cannot be preloaded", found);
        return -1;
    }
    return 0;
}
