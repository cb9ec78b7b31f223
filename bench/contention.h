/* contention.h - many threads that allocate and free at once.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_CONTENTION_H
#define SLATE_CONTENTION_H

#include "bench.h"

#include <pthread.h>

enum {
    CONTENTION_LIVE = 512,     /* blocks alive in a thread */
    CONTENTION_PLACES = 256,   /* where threads lay down blocks for each other */
    CONTENTION_SHARED = 8,     /* one block in so many goes to another thread */
    CONTENTION_PHASE = 1 << 13 /* operations before a thread frees all and turns to other sizes */
};

struct contention {
    uint64_t operations; /* of each thread */
    pthread_barrier_t start;
    struct bench_result *result;
    void *places[CONTENTION_PLACES]; /* exchanged atomically, acquire and release */
};

struct contention_thread {
    _Alignas(128) struct contention *all;
    uint64_t number;
    void *blocks[CONTENTION_LIVE];
};

/* A thread's work, and the end of the blocks that were laid down for nobody. */
struct contention_kind {
    void *(*work)(void *thread);
    void (*clear)(struct contention *contention);
};

extern const struct contention_kind contention_slate, contention_call, contention_malloc;

#endif
