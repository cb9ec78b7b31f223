/* contention_loop.h - what each thread of `slate bench contention` does; included once for each
 * kind of allocator.
 *
 * SPDX-License-Identifier: MIT
 *
 * The includer has an interface_*.h before this, and defines CONTENTION_KIND, the kind's name.
 *
 * A block's first two words depend on its size and address, and are checked when it ends.
 */
#include "contention.h"

typedef uint64_t contention_word __attribute__((may_alias));

static inline uint64_t contention_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline contention_word contention_stamp(const void *block, size_t size)
{
    return ((uintptr_t)block + size) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Each phase has its sizes, so that the units of one phase must come back before those of the next
 * can be had; one block in 64 of the last is above the largest class. */
static inline size_t contention_size(uint64_t phase, uint64_t random)
{
    switch (phase % 4) {
    case 0:
        return 16 + random % 113;
    case 1:
        return 129 + random % 384;
    case 2:
        return 513 + random % 3584;
    default:
        return random % 64 ? 16 + random / 64 % 16369 : 16385 + random / 64 % 49152;
    }
}

static inline void *contention_make(struct contention *all, size_t size)
{
    contention_word *block = ALLOCATE(size);
    if (__builtin_expect(!block, 0))
        bench_fail(all->result, BENCH_NO_MEMORY, NULL, size);
    block[0] = size;
    block[1] = contention_stamp(block, size);
    return block;
}

static inline void contention_end(struct contention *all, void *block)
{
    contention_word *words = block;
    if (!block)
        return;
    if (__builtin_expect(words[1] != contention_stamp(block, words[0]), 0))
        bench_fail(all->result, BENCH_CHANGED, block, words[0]);
    /* A block that was handed out twice is found at its second end; the compiler may not take the
     * store for needless. */
    words[1] = 0;
    __asm__ volatile("" : : "r"(words) : "memory");
    FREE(block);
}

static void *contention_work(void *argument)
{
    struct contention_thread *self = argument;
    struct contention *all = self->all;
    uint64_t state = (self->number + 1) * UINT64_C(0x9e3779b97f4a7c15),
             operations = all->operations;
    pthread_barrier_wait(&all->start);
    for (uint64_t i = 0; i < operations; i++) {
        /* Threads are in different phases: what one gives back is what another needs. */
        uint64_t phase = i / CONTENTION_PHASE + self->number;
        if (i % CONTENTION_PHASE == 0) {
            for (size_t slot = 0; slot < CONTENTION_LIVE; slot++) {
                contention_end(all, self->blocks[slot]);
                self->blocks[slot] = NULL;
            }
        }
        uint64_t random = contention_random(&state);
        void **slot = &self->blocks[random % CONTENTION_LIVE];
        void *old = *slot;
        random /= CONTENTION_LIVE;
        if (random % CONTENTION_SHARED == 0)
            old = __atomic_exchange_n(&all->places[random / CONTENTION_SHARED % CONTENTION_PLACES],
                                      old, __ATOMIC_ACQ_REL);
        contention_end(all, old);
        *slot = contention_make(
            all,
            contention_size(phase, random / (CONTENTION_SHARED * (uint64_t)CONTENTION_PLACES)));
    }
    for (size_t slot = 0; slot < CONTENTION_LIVE; slot++)
        contention_end(all, self->blocks[slot]);
    return NULL;
}

static void contention_clear(struct contention *all)
{
    for (size_t place = 0; place < CONTENTION_PLACES; place++)
        contention_end(all, all->places[place]);
}

const struct contention_kind CONTENTION_KIND = {contention_work, contention_clear};
