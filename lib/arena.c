/* lib/arena.c - thread arenas: claim, park, foreign frees, fork.
 *
 * SPDX-License-Identifier: MIT
 */
#include "arena.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "assert.h"
#include "lock.h"
#include "os.h"

/* Three empty arenas in which nothing can be found, so that every operation of such a thread goes
 * to the slow path; which of them says why.  Only their addresses differ: they overlap in one
 * object of zeroes. */
static const union {
    struct slate_arena_ arena;
    char zeroes[sizeof(struct slate_arena_) + 2 * 64];
} empty_arena;

#define EMPTY(n) ((struct slate_arena_ *)(uintptr_t)(empty_arena.zeroes + 64 * (n)))
#define UNUSED EMPTY(0)  /* the thread has not used slate yet */
#define SHARING EMPTY(1) /* more threads than arenas */
#define LEAVING EMPTY(2) /* the thread is ending and has parked its arena */

__thread struct slate_arena_ *slate_self_ = (struct slate_arena_ *)(uintptr_t)empty_arena.zeroes;

static const struct slatei_arena_hooks *hooks;
static struct slatei_fork_handlers fork_handlers;
static pthread_key_t thread_end;

/* Guards the last arena, which all threads without one of their own share. */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
/* Arenas [0, used) have been claimed at least once.  Written under new_lock with release once the
 * arena is set up; read with acquire by slatei_arena_at. */
static atomic_uint used;
static pthread_mutex_t new_lock = PTHREAD_MUTEX_INITIALIZER;
/* The last arena is set up.  Written under shared_lock with release, read with acquire by
 * slatei_arena_at. */
static atomic_bool shared_made;
/* Arenas parked and not yet claimed again: a hint, relaxed. */
static atomic_int parked;

static inline struct slatei_arena *arena_at(size_t number)
{
    return (struct slatei_arena *)(void *)(slatei_reserve.arena_area +
                                           number * SLATEI_ARENA_STRIDE);
}

static inline size_t shared_number(void) { return slatei_reserve.arenas - 1; }

struct slatei_arena *slatei_arena_of(unsigned number) { return arena_at(number); }

struct slatei_arena *slatei_arena_at(size_t number)
{
    if (number == shared_number())
        return atomic_load_explicit(&shared_made, memory_order_acquire) ? arena_at(number) : NULL;
    return number < atomic_load_explicit(&used, memory_order_acquire) ? arena_at(number) : NULL;
}

static void thread_ends(void *value)
{
    struct slatei_arena *arena = value;
    slate_self_ = LEAVING;
    slatei_arena_park(arena);
}

int slatei_arena_start(const struct slatei_arena_hooks *given,
                       const struct slatei_fork_handlers *handlers)
{
    hooks = given;
    if (handlers != NULL)
        fork_handlers = *handlers;
    return pthread_key_create(&thread_end, thread_ends);
}

/* Fills in what never changes. */
static void set_up(struct slatei_arena *arena, size_t number)
{
    arena->front.map = slatei_reserve.map;
    arena->front.tag = (uint32_t)number << SLATE_MAP_SHIFT_ | SLATEI_MAP_CLASS;
    arena->front.number = (uint32_t)number;
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        arena->front.entry[i].size = slate_class_size_(i);
    if (slatei_reserve.slice_span != 0) {
        size_t span = slatei_reserve.slice_span;
        char *base = slatei_reserve.base + slatei_reserve.pool_span + number * SLATE_CLASSES * span;
        for (unsigned i = 0; i < SLATE_CLASSES; i++) {
            arena->slices[i].base = base + i * span;
            arena->slices[i].span = span;
        }
    }
    hooks->fresh(arena);
    arena->front.base = (uintptr_t)slatei_reserve.base;
    arena->front.span = slatei_reserve.span;
}

static struct slatei_arena *claim_new(size_t number)
{
    struct slatei_arena *arena = arena_at(number);
    if (slatei_os_commit(arena, SLATEI_ARENA_STRIDE) != 0)
        return NULL;
    atomic_store_explicit(&arena->state, SLATEI_ARENA_CLAIMED, memory_order_relaxed);
    set_up(arena, number);
    return arena;
}

bool slatei_arena_adopt(struct slatei_arena *arena)
{
    int expected = SLATEI_ARENA_PARKED;
    if (!atomic_compare_exchange_strong_explicit(&arena->state, &expected, SLATEI_ARENA_CLAIMED,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    atomic_fetch_sub_explicit(&parked, 1, memory_order_relaxed);
    return true;
}

static bool adopt_orphan(struct slatei_arena *arena)
{
    int orphaned = SLATEI_ARENA_ORPHANED;
    if (!atomic_compare_exchange_strong_explicit(&arena->state, &orphaned, SLATEI_ARENA_CLAIMED,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    atomic_fetch_sub_explicit(&parked, 1, memory_order_relaxed);
    hooks->rebuild(arena);
    return true;
}

/* The lowest parked arena, else an orphan, else a new one; NULL when there is none. */
static struct slatei_arena *claim(void)
{
    unsigned count = atomic_load_explicit(&used, memory_order_acquire);
    size_t most = shared_number();
    if (atomic_load_explicit(&parked, memory_order_relaxed) > 0)
        for (unsigned i = 0; i < count; i++)
            if (slatei_arena_adopt(arena_at(i)) || adopt_orphan(arena_at(i)))
                return arena_at(i);
    struct slatei_arena *arena = NULL;
    slatei_lock(&new_lock);
    count = atomic_load_explicit(&used, memory_order_relaxed);
    if (count < most && (arena = claim_new(count)) != NULL)
        atomic_store_explicit(&used, count + 1, memory_order_release);
    slatei_unlock(&new_lock);
    return arena;
}

/* ---- fork handlers */

enum guard { NO_GUARD, MAKING_GUARD, GUARDED };
/* Stored with release when the handlers are registered; loaded with acquire by whoever waits. */
static atomic_int guard;
/* The thread that registers them; meant for that thread alone, so relaxed. */
static atomic_uintptr_t guard_maker;

void slatei_arena_guard_forks(void)
{
    int state = atomic_load_explicit(&guard, memory_order_acquire);
    if (__builtin_expect(state == GUARDED, 1) || fork_handlers.before == NULL)
        return;
    int saved = errno;
    uintptr_t self = (uintptr_t)pthread_self();
    state = NO_GUARD;
    if (atomic_compare_exchange_strong_explicit(&guard, &state, MAKING_GUARD, memory_order_acquire,
                                                memory_order_acquire)) {
        atomic_store_explicit(&guard_maker, self, memory_order_relaxed);
        pthread_atfork(fork_handlers.before, fork_handlers.in_parent, fork_handlers.in_child);
        atomic_store_explicit(&guard, GUARDED, memory_order_release);
    }
    /* The C library may allocate in order to register them. */
    while (atomic_load_explicit(&guard, memory_order_acquire) != GUARDED &&
           atomic_load_explicit(&guard_maker, memory_order_relaxed) != self)
        sched_yield();
    errno = saved;
}

struct slatei_arena *slatei_arena_enter(void)
{
    if (slatei_arena_owned())
        return (struct slatei_arena *)(void *)slate_self_;
    bool may_claim =
        slate_self_ == UNUSED ||
        (slate_self_ == SHARING && atomic_load_explicit(&parked, memory_order_relaxed) > 0);
    if (may_claim) {
        struct slatei_arena *arena = claim();
        if (arena != NULL) {
            int saved = errno;
            slate_self_ = &arena->front;
            /* From here on the thread has an arena, so that a C library that allocates for the key
             * finds one. */
            pthread_setspecific(thread_end, arena);
            errno = saved;
            return arena;
        }
        slate_self_ = SHARING;
    }
    slatei_lock(&shared_lock);
    struct slatei_arena *arena = arena_at(shared_number());
    if (!atomic_load_explicit(&shared_made, memory_order_relaxed)) {
        if (claim_new(shared_number()) == NULL) {
            slatei_unlock(&shared_lock);
            return NULL;
        }
        atomic_store_explicit(&shared_made, true, memory_order_release);
    }
    return arena;
}

struct slatei_arena *slatei_arena_enter_shared(void)
{
    if (slatei_arena_at(shared_number()) == NULL)
        return NULL;
    slatei_lock(&shared_lock);
    return arena_at(shared_number());
}

void slatei_arena_leave(struct slatei_arena *arena)
{
    if (arena->front.number == shared_number())
        slatei_unlock(&shared_lock);
}

void slatei_arena_push_foreign(struct slatei_arena *owner, void *block)
{
    struct slate_block_ *pushed = block;
    struct slate_block_ *first = atomic_load_explicit(&owner->remote, memory_order_relaxed);
    do
        pushed->next = first;
    while (!atomic_compare_exchange_weak_explicit(&owner->remote, &first, pushed,
                                                  memory_order_release, memory_order_relaxed));
}

void slatei_arena_park(struct slatei_arena *arena)
{
    SLATEI_ASSERT(atomic_load_explicit(&arena->state, memory_order_relaxed) ==
                  SLATEI_ARENA_CLAIMED);
    SLATEI_ASSERT(arena->front.number != shared_number());
    hooks->park(arena);
    atomic_store_explicit(&arena->state, SLATEI_ARENA_PARKED, memory_order_release);
    atomic_fetch_add_explicit(&parked, 1, memory_order_relaxed);
}

void slatei_arena_before_fork(void)
{
    slatei_lock(&shared_lock);
    slatei_lock(&new_lock);
}

/* The memory of the child is not a snapshot of one moment: other threads went on while it was
 * copied.  So what they alone wrote without a lock is not to be trusted there, nor is any stack
 * that they may have pushed onto. */
static void orphan(struct slatei_arena *arena)
{
    if (atomic_load_explicit(&arena->state, memory_order_relaxed) != SLATEI_ARENA_CLAIMED ||
        &arena->front == slate_self_)
        return;
    atomic_store_explicit(&arena->state, SLATEI_ARENA_ORPHANED, memory_order_relaxed);
    atomic_fetch_add_explicit(&parked, 1, memory_order_relaxed);
}

void slatei_arena_after_fork(bool child)
{
    if (child) {
        unsigned count = atomic_load_explicit(&used, memory_order_relaxed);
        for (unsigned i = 0; i < count; i++) {
            atomic_store_explicit(&arena_at(i)->remote, NULL, memory_order_relaxed);
            orphan(arena_at(i));
        }
        if (atomic_load_explicit(&shared_made, memory_order_relaxed))
            atomic_store_explicit(&arena_at(shared_number())->remote, NULL, memory_order_relaxed);
    }
    slatei_unlock(&new_lock);
    slatei_unlock(&shared_lock);
}
