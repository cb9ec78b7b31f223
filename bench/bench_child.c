/* bench_child.c - the process that runs one case of a small comparison once on one allocator.
 *
 * SPDX-License-Identifier: MIT
 *
 * Nothing here allocates through the measured allocator.
 */
#include "bench.h"
#include "commands.h"

#include <slate.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void bench_fail(struct bench_result *result, int status, const void *block, size_t size)
{
    /* The first of several threads says what it was. */
    static int failing;
    if (__atomic_exchange_n(&failing, 1, __ATOMIC_RELAXED))
        for (;;)
            pause();
    result->error = errno;
    result->address = (uintptr_t)block;
    result->size = size;
    result->status = status;
    _exit(1);
}

/* slate bench-child COMPARISON CASE KIND LIBRARY MILLISECONDS THREADS OPERATIONS: started by bench,
 * with the result page as file. */
int command_bench_child(int argc, char **argv)
{
    struct bench_result *result = argc == 8 ? child_map_result(sizeof *result) : NULL;
    const struct bench *bench = result ? bench_find(argv[1]) : NULL;
    if (!bench) {
        static const char text[] = "slate: bench-child is for slate bench alone\n";
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
        return EXIT_USAGE;
    }
    enum replay_kind kind = KIND_MALLOC;
    if (strcmp(argv[3], "slate") == 0)
        kind = KIND_SLATE;
    else if (strcmp(argv[3], "call") == 0)
        kind = KIND_CALL;
    if (kind != KIND_MALLOC) {
        child_set_version(result->version, slate_version());
    } else if (!child_find_malloc(result->version, argv[4])) {
        result->status = BENCH_NOT_PRELOADED;
        return EXIT_FAILED;
    }
    struct bench_settings settings = {.milliseconds = strtol(argv[5], NULL, 10),
                                      .threads = strtol(argv[6], NULL, 10),
                                      .operations = strtol(argv[7], NULL, 10)};
    bench->run(strtoul(argv[2], NULL, 10), kind, &settings, result);
    result->status = BENCH_DONE;
    return EXIT_GOOD;
}
