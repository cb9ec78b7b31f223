/* child.c - what every measuring child process needs: its result page, who malloc is, what the
 * kernel counts.
 *
 * SPDX-License-Identifier: MIT
 *
 * Files under /proc are read with plain system calls, memory comes from mmap.
 */
#define _GNU_SOURCE 1
#include "child.h"

#include "launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *child_map_result(size_t bytes)
{
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, LAUNCH_RESULT_FILE, 0);
    return page == MAP_FAILED ? NULL : page;
}

void *child_map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                    -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* ---- who malloc is ---- */

void child_set_version(char version[CHILD_VERSION_BYTES], const char *text)
{
    size_t length = strnlen(text, CHILD_VERSION_BYTES - 1);
    memcpy(version, text, length);
    version[length] = '\0';
}

/* Puts the function `name` of the process, if there is one, into the pointer at `function`. */
static bool find_function(const char *name, void *function)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* The version that a preloaded library tells of itself; "" if it tells none. */
static void library_version(char *text, size_t room)
{
    int (*mimalloc)(void);
    int (*jemalloc)(const char *, void *, size_t *, void *, size_t);
    const char *(*tcmalloc)(int *, int *, const char **);
    text[0] = '\0';
    if (find_function("mi_version", &mimalloc)) {
        /* Major, minor and patch: of one digit each, or since 2.2.9 and 3.2.9 of one, two and two.
         */
        int version = mimalloc(), scale = version < 1000 ? 10 : 100;
        snprintf(text, room, "%d.%d.%d", version / scale / scale, version / scale % scale,
                 version % scale);
    } else if (find_function("tc_version", &tcmalloc)) {
        snprintf(text, room, "%s", tcmalloc(NULL, NULL, NULL));
    } else if (find_function("mallctl", &jemalloc)) {
        const char *version = NULL;
        size_t bytes = sizeof version;
        if (jemalloc("version", &version, &bytes, NULL, 0) == 0 && version)
            snprintf(text, room, "%.*s", (int)strcspn(version, "-"), version);
    }
}

bool child_find_malloc(char version[CHILD_VERSION_BYTES], const char *expected)
{
    Dl_info info, of_libc;
    char real[4096], text[128], all[sizeof real + sizeof text + 16];
    void *address = dlsym(RTLD_DEFAULT, "malloc"), *libc = dlsym(RTLD_DEFAULT, "getpid");
    if (!address || !dladdr(address, &info) || !realpath(info.dli_fname, real))
        real[0] = '\0';
    const char *base = strrchr(real, '/');
    base = base ? base + 1 : real;
    if (address && libc && dladdr(libc, &of_libc) && of_libc.dli_fbase == info.dli_fbase)
        snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
    else
        library_version(text, sizeof text);
    snprintf(all, sizeof all, text[0] ? "%s (%s)" : "%s", base, text);
    child_set_version(version, all);
    return !*expected || strcmp(real, expected) == 0;
}

/* ---- what the kernel counts ---- */

/* Reads a file whole into `text`.  Returns 0, or -1. */
static int read_text(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    size_t length = 0;
    ssize_t got;
    while (length < room - 1 && (got = read(file, text + length, room - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(file);
    return 0;
}

/* The number behind the line's `name`; 0 if the kernel has no such line. */
static uint64_t field_kb(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

struct child_sizes child_read_sizes(void)
{
    static char text[8192];
    if (read_text("/proc/self/status", text, sizeof text) < 0)
        return (struct child_sizes){0, 0, 0};
    return (struct child_sizes){.resident_kb = field_kb(text, "\nVmRSS:"),
                                .peak_kb = field_kb(text, "\nVmHWM:"),
                                .page_table_kb = field_kb(text, "\nVmPTE:")};
}

uint64_t child_read_anonymous_huge_kb(void)
{
    static char text[8192];
    if (read_text("/proc/self/smaps_rollup", text, sizeof text) < 0)
        return 0;
    return field_kb(text, "\nAnonHugePages:");
}

void child_reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t written = write(file, "5", 1);
    (void)written; /* a kernel without it: the peak before the measured part is what was touched,
                      which is the baseline */
    close(file);
}
