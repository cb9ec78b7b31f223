/* micro_loop.h - the loops that `slate bench micro` times; included once for each kind of
 * allocator.
 *
 * SPDX-License-Identifier: MIT
 *
 * The includer has an interface_*.h before this, and defines MICRO_TABLE, the table's name.
 *
 * Every block's first word is written, by stores that the compiler must keep; it knows nothing of
 * where a block came from, so it can drop no allocation either.
 */
#include "micro.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define MICRO_OPAQUE(pointer) __asm__ volatile("" : "+r"(pointer))

typedef volatile uint64_t micro_word __attribute__((may_alias));

/* What an allocation returned: not NULL, and written. */
static inline void *made(struct micro *micro, void *block, size_t size)
{
    MICRO_OPAQUE(block);
    if (__builtin_expect(!block, 0))
        bench_fail(micro->result, BENCH_NO_MEMORY, NULL, size);
    *(micro_word *)block = size;
    return block;
}

/* ---- one block ---- */

static inline __attribute__((always_inline)) void pair(struct micro *micro, size_t size)
{
    uint64_t rounds = micro->rounds;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        void *block = made(micro, ALLOCATE(size), size);
        FREE(block);
    }
    micro_stop(micro, rounds);
}

static void pair_48(struct micro *micro) { pair(micro, 48); }
static void pair_1k(struct micro *micro) { pair(micro, 1024); }
static void pair_4k(struct micro *micro) { pair(micro, 4096); }
static void pair_16k(struct micro *micro) { pair(micro, 16384); }
static void pair_64k(struct micro *micro) { pair(micro, 65536); }

/* The block is dirty when it is freed, at both ends; the next must be zero there. */
static inline __attribute__((always_inline)) void zero(struct micro *micro, size_t size)
{
    uint64_t rounds = micro->rounds, dirty = 0;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        void *block = ALLOCATE_ZERO(size);
        MICRO_OPAQUE(block);
        if (__builtin_expect(!block, 0))
            bench_fail(micro->result, BENCH_NO_MEMORY, NULL, size);
        micro_word *first = block, *last = (micro_word *)((char *)block + size - sizeof *last);
        dirty |= *first | *last;
        *first = size;
        *last = size;
        FREE(block);
    }
    micro_stop(micro, rounds);
    if (dirty)
        bench_fail(micro->result, BENCH_NOT_ZERO, NULL, size);
}

static void zero_64(struct micro *micro) { zero(micro, 64); }
static void zero_512(struct micro *micro) { zero(micro, 512); }

static void free_null(struct micro *micro)
{
    uint64_t rounds = micro->rounds;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        void *none = NULL;
        MICRO_OPAQUE(none);
        FREE(none);
    }
    micro_stop(micro, rounds);
}

/* ---- many blocks ---- */

static inline __attribute__((always_inline)) void batch(struct micro *micro, const uint16_t *order)
{
    uint64_t rounds = micro->rounds;
    void **blocks = micro->blocks;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < MICRO_BATCH; i++)
            blocks[i] = made(micro, ALLOCATE(48), 48);
        for (size_t i = 0; i < MICRO_BATCH; i++)
            FREE(blocks[order[i]]);
    }
    micro_stop(micro, rounds * MICRO_BATCH);
}

static void in_order(struct micro *micro) { batch(micro, micro->in_order); }
static void reverse(struct micro *micro) { batch(micro, micro->reverse); }
static void shuffled(struct micro *micro) { batch(micro, micro->shuffled); }

static inline void fill(struct micro *micro, const uint16_t *sizes, size_t live)
{
    for (size_t i = 0; i < live; i++)
        micro->blocks[i] = made(micro, ALLOCATE(sizes[i]), sizes[i]);
}

static inline void empty(struct micro *micro, size_t live)
{
    for (size_t i = 0; i < live; i++)
        FREE(micro->blocks[i]);
}

/* A random one of the live blocks ends and one of a random size takes its place. */
static inline __attribute__((always_inline)) void mixed(struct micro *micro, const uint16_t *sizes,
                                                        size_t live)
{
    uint64_t rounds = micro->rounds;
    void **blocks = micro->blocks;
    fill(micro, sizes, live);
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < MICRO_SEQUENCE; i++) {
            size_t slot = micro->slots[i] & (live - 1), size = sizes[i];
            FREE(blocks[slot]);
            blocks[slot] = made(micro, ALLOCATE(size), size);
        }
    }
    micro_stop(micro, rounds * MICRO_SEQUENCE);
    empty(micro, live);
}

static void mixed_small(struct micro *micro) { mixed(micro, micro->small_sizes, MICRO_LIVE); }
static void mixed_medium(struct micro *micro) { mixed(micro, micro->medium_sizes, MICRO_LIVE / 4); }

static void usable_size(struct micro *micro)
{
    uint64_t rounds = micro->rounds, sum = 0;
    fill(micro, micro->small_sizes, MICRO_LIVE);
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < MICRO_LIVE; i++) {
            void *block = micro->blocks[i];
            MICRO_OPAQUE(block);
            sum += USABLE_SIZE(block);
        }
    }
    micro_stop(micro, rounds * MICRO_LIVE);
    micro->sink = sum;
    empty(micro, MICRO_LIVE);
}

/* ---- growth ---- */

/* What a realloc returned: the old first word must be there still. */
static inline void *moved(struct micro *micro, void *block, size_t old_size, size_t size)
{
    MICRO_OPAQUE(block);
    if (__builtin_expect(!block, 0))
        bench_fail(micro->result, BENCH_NO_MEMORY, NULL, size);
    if (__builtin_expect(*(micro_word *)block != old_size, 0))
        bench_fail(micro->result, BENCH_CHANGED, block, size);
    *(micro_word *)block = size;
    return block;
}

/* As property arrays grow; one operation is a step, with its part of the block's beginning and end.
 */
static void grow_small(struct micro *micro)
{
    static const uint16_t sizes[] = {72, 108, 162, 243, 364, 512};
    enum { STEPS = sizeof sizes / sizeof sizes[0] };
    uint64_t rounds = micro->rounds;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        size_t size = 48;
        void *block = made(micro, ALLOCATE(size), size);
        for (size_t i = 0; i < STEPS; size = sizes[i++]) {
            size_t next = sizes[i];
            block = moved(micro, REALLOCATE(block, next), size, next);
        }
        FREE(block);
    }
    micro_stop(micro, rounds * STEPS);
}

/* As an object file or a long array grows; the grown part's last word is written too. */
static void grow_large(struct micro *micro)
{
    static const size_t least = (size_t)1 << 20, most = (size_t)16 << 20, step = (size_t)64 << 10;
    uint64_t rounds = micro->rounds;
    micro_start(micro);
    for (uint64_t round = 0; round < rounds; round++) {
        void *block = made(micro, ALLOCATE(least), least);
        for (size_t size = least; size < most; size += step) {
            block = moved(micro, REALLOCATE(block, size + step), size, size + step);
            *(micro_word *)((char *)block + size + step - sizeof(uint64_t)) = size;
        }
        FREE(block);
    }
    micro_stop(micro, rounds * ((most - least) / step));
}

/* ---- from thread to thread ---- */

static void *consume(void *argument)
{
    struct micro *micro = argument;
    uint64_t rounds = micro->rounds;
    struct timespec started;
    for (uint64_t round = 0; round < rounds; round++) {
        while (__atomic_load_n(&micro->filled, __ATOMIC_ACQUIRE) <= round)
            sched_yield();
        void **blocks = micro->ring[round % MICRO_RING];
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &started);
        for (size_t i = 0; i < MICRO_BATCH; i++)
            FREE(blocks[i]);
        micro->consumer_seconds += micro_elapsed(&started);
        __atomic_store_n(&micro->emptied, round + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* The time of both threads, without what they wait for each other. */
static void foreign(struct micro *micro)
{
    uint64_t rounds = micro->rounds;
    pthread_t consumer;
    micro->filled = micro->emptied = 0;
    micro->consumer_seconds = 0;
    errno = pthread_create(&consumer, NULL, consume, micro);
    if (errno)
        bench_fail(micro->result, BENCH_SETUP_FAILED, NULL, 0);
    for (uint64_t round = 0; round < rounds; round++) {
        while (__atomic_load_n(&micro->emptied, __ATOMIC_ACQUIRE) + MICRO_RING <= round)
            sched_yield();
        void **blocks = micro->ring[round % MICRO_RING];
        micro_start(micro);
        for (size_t i = 0; i < MICRO_BATCH; i++)
            blocks[i] = made(micro, ALLOCATE(48), 48);
        micro_stop(micro, MICRO_BATCH);
        __atomic_store_n(&micro->filled, round + 1, __ATOMIC_RELEASE);
    }
    pthread_join(consumer, NULL);
    micro->seconds += micro->consumer_seconds;
}

#define MICRO_ENTRY(name, text) [MICRO_##name] = name,
micro_operation *const MICRO_TABLE[MICRO_COUNT] = {MICRO_OPERATIONS(MICRO_ENTRY)};
#undef MICRO_ENTRY
