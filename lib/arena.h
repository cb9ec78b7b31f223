/* lib/arena.h - thread arenas: whose they are, and blocks that other threads freed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_ARENA_H
#define SLATEI_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy.h"
#include "reserve.h"

/* Runs of up to 64 KiB that the arena keeps for the next large block of the same length, so that
 * programs that make and end many such blocks do not wait for the pool's lock: two of a length, 256
 * KiB in all. */
#define SLATEI_SPARE_LEAST (SLATE_CLASS_MAX / SLATEI_GRANULE + 1) /* granules */
#define SLATEI_SPARE_MOST ((size_t)16)
#define SLATEI_SPARE_EACH 2
#define SLATEI_SPARE_ALL 64

/* Blocks on the stack of a class, at most.  64 to 1,024 take the same time on the traces to within
 * the noise; every 4 KiB of stacks is a fault in each thread. */
#define SLATEI_STACK_MOST 128
/* Slot 0 is never read and slot 1 always NULL, the bottom; a line more than needed, so that the
 * stacks of different classes do not compete for the same lines of the cache. */
#define SLATEI_STACK_SLOTS (SLATEI_STACK_MOST + 8)

enum slatei_arena_state {
    SLATEI_ARENA_NEW,      /* never used */
    SLATEI_ARENA_CLAIMED,  /* somebody's */
    SLATEI_ARENA_PARKED,   /* whole, waiting for the next owner */
    SLATEI_ARENA_ORPHANED, /* after fork: of a thread that the child does not have; its records are
                              to be rebuilt */
};

/* Everything but remote and state is touched by the owner alone: the thread whose slate_self_ it
 * is, or for the last arena the holder of the shared arena's lock, or whoever holds state CLAIMED
 * for a moment. */
struct slatei_arena {
    struct slate_arena_ front;
    /* Stack of foreign frees.  Pushed with release by any thread; taken whole with acquire by the
     * owner in slatei_arena_take_foreign. */
    _Atomic(struct slate_block_ *) remote;
    /* Claimed by compare-and-swap with acquire, which pairs with the release store of whoever
     * parked it. */
    atomic_int state;
    uint32_t returns; /* chain of wholly free units to put back, through their records' next */
    /* First granules of kept runs by length; 0 none.  They are large blocks in the map and in their
     * descriptors still. spare_granules == sum of their lengths <= SLATEI_SPARE_ALL */
    uint32_t spare[SLATEI_SPARE_MOST - SLATEI_SPARE_LEAST + 1][SLATEI_SPARE_EACH];
    uint32_t spare_granules;
    uint32_t returned_since; /* granules put back since all stacks were flushed */
    bool rebuilt;            /* it was an orphan once */
    uint64_t idle_flushed;   /* `flushed` when slate_thread_idle last gave pages back */
    uint64_t slow, flushes, flushed, taken, returned; /* counts for slate_stats */
    /* With SLATE_ORDER=lifo: the blocks below those on the stack, newest first. */
    struct slate_block_ *older[SLATE_CLASSES];
    /* One a class; used when there are class slices. */
    struct slatei_slice slices[SLATE_CLASSES];
    /* The stacks of free blocks, oldest at slot 2, that the tops point into. */
    void *stack[SLATE_CLASSES][SLATEI_STACK_SLOTS];
};

_Static_assert(sizeof(struct slatei_arena) <= SLATEI_ARENA_STRIDE, "an arena fits its place");

/* What happens to an arena's blocks is a higher level's business. */
struct slatei_arena_hooks {
    void (*fresh)(struct slatei_arena *arena);   /* used for the first time */
    void (*park)(struct slatei_arena *arena);    /* its owner leaves */
    void (*rebuild)(struct slatei_arena *arena); /* orphaned by fork, has a new owner */
};

/* What is to be done around a fork, which is all of the library's business. */
struct slatei_fork_handlers {
    void (*before)(void);
    void (*in_parent)(void);
    void (*in_child)(void);
};

/* Prepares for the first claim.  Called once, after the reservation is made.  `handlers` NULL:
 * there are no forks.  Returns 0 or an error number. */
int slatei_arena_start(const struct slatei_arena_hooks *hooks,
                       const struct slatei_fork_handlers *handlers);

/* To be called by a thread without an arena before it takes a lock or claims an arena: while one
 * thread alone uses the heap, a fork finds nothing half-done in it and needs no handlers, so the
 * first such call registers them. */
void slatei_arena_guard_forks(void);

/* True while the calling thread has an arena of its own in slate_self_. */
static inline bool slatei_arena_owned(void) { return slate_self_->span != 0; }

/* The arena to work on in a slow path: the thread's own, claimed at its first use; else the shared
 * one, locked. NULL when the system gives no memory for one.  Ends with slatei_arena_leave. */
struct slatei_arena *slatei_arena_enter(void);
/* The shared arena, locked; NULL if there is none so far. */
struct slatei_arena *slatei_arena_enter_shared(void);
void slatei_arena_leave(struct slatei_arena *arena);

/* The arena with that number; it exists once a granule map value names it. */
struct slatei_arena *slatei_arena_of(unsigned number);
/* For going over all arenas, numbers 0 to slatei_reserve.arenas - 1: the arena, or NULL if it was
 * never used. */
struct slatei_arena *slatei_arena_at(size_t number);

/* Pushes a block of another arena onto its stack. */
void slatei_arena_push_foreign(struct slatei_arena *owner, void *block);
/* The stack of foreign frees, which is empty after. */
static inline struct slate_block_ *slatei_arena_take_foreign(struct slatei_arena *arena)
{
    if (atomic_load_explicit(&arena->remote, memory_order_relaxed) == NULL)
        return NULL;
    return atomic_exchange_explicit(&arena->remote, NULL, memory_order_acquire);
}

/* Makes the calling thread the owner of a parked arena for a moment.  False if it is not parked
 * (any more). */
bool slatei_arena_adopt(struct slatei_arena *arena);
void slatei_arena_park(struct slatei_arena *arena);

/* Around fork: before it nothing may be half-done here, after it the child's other arenas are
 * orphans. */
void slatei_arena_before_fork(void);
void slatei_arena_after_fork(bool child);

#endif
