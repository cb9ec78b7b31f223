/* micro.h - the small operations that `slate bench micro` times.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_MICRO_H
#define SLATE_MICRO_H

#include "bench.h"

#include <stdint.h>
#include <time.h>

/* Name, what is timed. */
#define MICRO_OPERATIONS(X)                                                                        \
    X(pair_48, "48 B: alloc, free")                                                                \
    X(in_order, "1,000 x 48 B: in order")                                                          \
    X(reverse, "1,000 x 48 B: reverse")                                                            \
    X(shuffled, "1,000 x 48 B: shuffled")                                                          \
    X(mixed_small, "mixed 16 to 512 B")                                                            \
    X(zero_64, "64 B: zalloc, free")                                                               \
    X(zero_512, "512 B: zalloc, free")                                                             \
    X(grow_small, "realloc x 1.5, 48 to 512 B")                                                    \
    X(usable_size, "usable_size")                                                                  \
    X(free_null, "free(NULL)")                                                                     \
    X(pair_1k, "1 KiB: alloc, free")                                                               \
    X(pair_4k, "4 KiB: alloc, free")                                                               \
    X(pair_16k, "16 KiB: alloc, free")                                                             \
    X(mixed_medium, "mixed 1 to 16 KiB")                                                           \
    X(pair_64k, "64 KiB: alloc, free")                                                             \
    X(grow_large, "realloc + 64 KiB to 16 MiB")                                                    \
    X(foreign, "48 B: freed by another")

#define MICRO_INDEX(name, text) MICRO_##name,
enum { MICRO_OPERATIONS(MICRO_INDEX) MICRO_COUNT };
#undef MICRO_INDEX

enum {
    MICRO_BATCH = 1000,    /* blocks allocated before any is freed */
    MICRO_LIVE = 1024,     /* blocks alive while mixed sizes come and go */
    MICRO_SEQUENCE = 4096, /* random sizes and slots, over and over */
    MICRO_RING = 4         /* batches on their way from thread to thread */
};

/* One loop: `rounds` of an operation are timed, and seconds and operations are added up. */
struct micro {
    uint64_t rounds;
    uint64_t operations;
    double seconds; /* of the thread's processor time: other processes do not count */
    struct timespec started;
    volatile uint64_t sink; /* keeps results that nobody wants */
    struct bench_result *result;
    uint16_t in_order[MICRO_BATCH], reverse[MICRO_BATCH], shuffled[MICRO_BATCH];
    uint16_t slots[MICRO_SEQUENCE], small_sizes[MICRO_SEQUENCE], medium_sizes[MICRO_SEQUENCE];
    void *blocks[MICRO_LIVE];
    void *ring[MICRO_RING][MICRO_BATCH];
    /* Batches that were put into the ring and taken out; a release after the batch, which the other
     * thread's acquire pairs with. */
    _Alignas(128) uint64_t filled;
    _Alignas(128) uint64_t emptied;
    double consumer_seconds;
};

typedef void micro_operation(struct micro *micro);
extern micro_operation *const micro_slate[MICRO_COUNT], *const micro_call[MICRO_COUNT],
                                                            *const micro_malloc[MICRO_COUNT];

static inline double micro_elapsed(const struct timespec *from)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)(now.tv_sec - from->tv_sec) + (double)(now.tv_nsec - from->tv_nsec) * 1e-9;
}

static inline void micro_start(struct micro *micro)
{
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &micro->started);
}

static inline void micro_stop(struct micro *micro, uint64_t operations)
{
    micro->seconds += micro_elapsed(&micro->started);
    micro->operations += operations;
}

#endif
