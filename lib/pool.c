/* lib/pool.c - runs: best fit, joining, giving back.
 *
 * SPDX-License-Identifier: MIT
 *
 * The pool is one slice.  Its granules are runs, free or in use, from granule 1 to the top; granule
 * 0 stays unused, so that 0 can mean none.  Free runs are nodes of a treap ordered by length, then
 * address; no two free runs touch, and none ends at the top.  All of it belongs to the lock, and so
 * does the map of the pool's granules as far as it is written: a block's owner may read its own
 * entries without.
 */
#include "pool.h"

#include <pthread.h>

#include "lock.h"
#include "os.h"
#include "policy.h"
#include "reserve.h"

/* A free run is worth giving back from this size on (bytes). */
#define GIVE_BACK_LEAST ((size_t)64 << 10)
/* New ground (bytes) for which as much free memory is looked for to give back. */
#define GIVE_BACK_STEP ((size_t)1 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* All guarded by lock.  Granules.
 *   top <= high;  free_granules == sum of the runs in the tree;  dirty_granules == sum of their
 * dirty */
static struct {
    struct slatei_slice slice;
    uint32_t root;
    size_t high;
    size_t used_top; /* above it nothing was carved since the last purge; >= top */
    size_t free_granules;
    size_t dirty_granules;
    size_t new_ground; /* since memory was last given back */
    uint64_t taken, put, contended;
} pool;

static inline struct slatei_descriptor *node(size_t granule)
{
    return &slatei_reserve.descriptor[granule];
}

void slatei_pool_start(void)
{
    pool.slice.base = slatei_reserve.base;
    pool.slice.span = slatei_reserve.pool_span;
    pool.slice.top = SLATEI_GRANULE;
    pool.high = 1;
}

void slatei_pool_lock(void)
{
    if (slatei_lock_is_open())
        return;
    if (pthread_mutex_trylock(&lock) != 0) {
        pthread_mutex_lock(&lock);
        pool.contended++;
    }
}

void slatei_pool_unlock(void) { slatei_unlock(&lock); }

/* ---- the tree of free runs */

static inline uint32_t priority(size_t granule) { return (uint32_t)granule * UINT32_C(2654435761); }

static inline bool before(size_t a, size_t b)
{
    uint32_t length_a = node(a)->run.length, length_b = node(b)->run.length;
    return length_a != length_b ? length_a < length_b : a < b;
}

/* Splits `tree` into the nodes before `key` and the others. */
static void split(uint32_t tree, uint32_t key, uint32_t *smaller, uint32_t *larger)
{
    while (tree != 0)
        if (before(tree, key)) {
            *smaller = tree;
            smaller = &node(tree)->run.right;
            tree = *smaller;
        } else {
            *larger = tree;
            larger = &node(tree)->run.left;
            tree = *larger;
        }
    *smaller = *larger = 0;
}

static void insert(uint32_t added)
{
    uint32_t *link = &pool.root;
    while (*link != 0 && priority(*link) >= priority(added))
        link = before(added, *link) ? &node(*link)->run.left : &node(*link)->run.right;
    uint32_t below = *link;
    *link = added;
    split(below, added, &node(added)->run.left, &node(added)->run.right);
}

static void extract(uint32_t removed)
{
    uint32_t *link = &pool.root;
    while (*link != removed)
        link = before(removed, *link) ? &node(*link)->run.left : &node(*link)->run.right;
    uint32_t left = node(removed)->run.left, right = node(removed)->run.right;
    while (left != 0 && right != 0)
        if (priority(left) > priority(right)) {
            *link = left;
            link = &node(left)->run.right;
            left = *link;
        } else {
            *link = right;
            link = &node(right)->run.left;
            right = *link;
        }
    *link = left != 0 ? left : right;
}

/* The first granule of `run` at which `count` granules begin at a multiple of `alignment`; 0 if
 * they do not fit. */
static size_t place_in(size_t run, size_t count, size_t alignment)
{
    size_t bias = (uintptr_t)slatei_reserve.base >> SLATE_GRANULE_SHIFT_;
    size_t start = slatei_round_up(run + bias, alignment) - bias;
    return start + count <= run + node(run)->run.length ? start : 0;
}

/* The shortest run, and of these the lowest, that holds `count` granules. */
static uint32_t best_fit(size_t count)
{
    uint32_t best = 0;
    for (uint32_t tree = pool.root; tree != 0;)
        if (node(tree)->run.length < count) {
            tree = node(tree)->run.right;
        } else {
            best = tree;
            tree = node(tree)->run.left;
        }
    return best;
}

static uint32_t best_aligned_fit(uint32_t tree, size_t count, size_t alignment)
{
    while (tree != 0) {
        if (node(tree)->run.length >= count) {
            uint32_t found = best_aligned_fit(node(tree)->run.left, count, alignment);
            if (found != 0)
                return found;
            if (place_in(tree, count, alignment) != 0)
                return tree;
        }
        tree = node(tree)->run.right;
    }
    return 0;
}

/* ---- runs */

static void fill_map(size_t first, size_t count, uint16_t value)
{
    uint16_t *map = slatei_reserve.map + first;
    for (size_t i = 0; i < count; i++)
        map[i] = value;
}

static void add_run(size_t first, size_t count, size_t dirty, bool zero)
{
    struct slatei_descriptor *run = node(first);
    run->run.length = (uint32_t)count;
    run->run.dirty = (uint32_t)(dirty < count ? dirty : count);
    run->run.zero = zero;
    node(first + count - 1)->run.length = (uint32_t)count;
    fill_map(first, count, SLATEI_MAP_FREE);
    insert((uint32_t)first);
    pool.free_granules += count;
    pool.dirty_granules += run->run.dirty;
}

static void remove_run(size_t first)
{
    extract((uint32_t)first);
    pool.free_granules -= node(first)->run.length;
    pool.dirty_granules -= node(first)->run.dirty;
}

static inline size_t top_granule(void) { return pool.slice.top >> SLATE_GRANULE_SHIFT_; }

/* Carves up to `top` (granules).  False when the system gives no memory. */
static bool raise_top(size_t top)
{
    size_t bytes = top << SLATE_GRANULE_SHIFT_;
    if (bytes > pool.slice.span)
        return false;
    if (bytes > pool.slice.limit && slatei_policy_raise(&pool.slice, bytes) != 0)
        return false;
    pool.slice.top = bytes;
    slatei_reserve.map[0] = SLATEI_MAP_BUSY; /* nothing joins granule 0 */
    if (top > pool.used_top)
        pool.used_top = top;
    if (top > pool.high) {
        pool.new_ground += top - pool.high;
        pool.high = top;
    }
    return true;
}

/* Cuts [start, start + count) out of the free run `first`; what is left stays free. */
static bool cut(size_t first, size_t start, size_t count)
{
    struct slatei_descriptor run = *node(first);
    size_t length = run.run.length, dirty = run.run.dirty;
    bool zero = run.run.zero;
    remove_run(first);
    if (start > first) {
        size_t part = start - first;
        add_run(first, part, dirty, zero);
        dirty -= dirty < part ? dirty : part;
    }
    dirty -= dirty < count ? dirty : count;
    if (start + count < first + length)
        add_run(start + count, first + length - start - count, dirty, zero);
    return zero;
}

/* Gives memory back for new ground: runs leave the tree while the lock is not held, so that the
 * system call stalls nobody.  Called with the lock, returns without it. */
static void give_back_and_unlock(void)
{
    size_t want = pool.new_ground;
    if ((want << SLATE_GRANULE_SHIFT_) < GIVE_BACK_STEP) {
        slatei_pool_unlock();
        return;
    }
    pool.new_ground = 0;
    if (pool.dirty_granules < GIVE_BACK_LEAST >> SLATE_GRANULE_SHIFT_) {
        slatei_pool_unlock();
        return;
    }
    /* Largest first; a chain through the descriptors. */
    uint32_t chain = 0, stack[64];
    unsigned depth = 0;
    size_t found = 0;
    size_t least = GIVE_BACK_LEAST >> SLATE_GRANULE_SHIFT_;
    uint32_t tree = pool.root;
    while ((tree != 0 || depth != 0) && found < want) {
        for (; tree != 0 && depth < 64; tree = node(tree)->run.right)
            stack[depth++] = tree;
        tree = stack[--depth];
        if (node(tree)->run.length < least)
            break;
        if (node(tree)->run.dirty >= least) {
            found += node(tree)->run.dirty;
            /* Marked, not yet removed: removing would turn the tree under the walk. */
            slatei_reserve.map[tree] = SLATEI_MAP_BUSY;
            node(tree + node(tree)->run.length - 1)->run.left = chain;
            chain = tree;
        }
        tree = node(tree)->run.left;
    }
    for (uint32_t run = chain; run != 0; run = node(run + node(run)->run.length - 1)->run.left) {
        remove_run(run);
        fill_map(run, node(run)->run.length, SLATEI_MAP_BUSY);
    }
    slatei_pool_unlock();
    for (uint32_t run = chain, next; run != 0; run = next) {
        size_t length = node(run)->run.length, dirty = node(run)->run.dirty;
        next = node(run + length - 1)->run.left;
        size_t from = (size_t)run << SLATE_GRANULE_SHIFT_;
        size_t bytes =
            slatei_policy_give_back(&pool.slice, from, from + (length << SLATE_GRANULE_SHIFT_));
        size_t given = bytes >> SLATE_GRANULE_SHIFT_;
        node(run)->run.dirty = (uint32_t)(given < dirty ? dirty - given : 0);
        slatei_pool_lock();
        slatei_pool_put_locked(run, length, given == length || node(run)->run.zero);
        slatei_pool_unlock();
    }
}

size_t slatei_pool_take(size_t count, size_t alignment, uint16_t value, bool *zero)
{
    size_t start;
    bool is_zero, new_ground = false;
    if (count > pool.slice.span >> SLATE_GRANULE_SHIFT_)
        return 0;
    slatei_pool_lock();
    uint32_t run = 0;
    if (pool.free_granules >= count)
        run = alignment == 1 ? best_fit(count) : best_aligned_fit(pool.root, count, alignment);
    if (run != 0) {
        start = place_in(run, count, alignment);
        is_zero = cut(run, start, count);
    } else {
        size_t top = top_granule(), high = pool.high;
        size_t bias = (uintptr_t)slatei_reserve.base >> SLATE_GRANULE_SHIFT_;
        start = slatei_round_up(top + bias, alignment) - bias;
        if (start + count < start || !raise_top(start + count)) {
            slatei_pool_unlock();
            return 0;
        }
        if (start > top)
            add_run(top, start - top, high > top ? high - top : 0, top >= high);
        is_zero = new_ground = start >= high;
    }
    pool.taken++;
    if (value == SLATEI_MAP_LARGE) {
        fill_map(start + 1, count - 1, SLATEI_MAP_INSIDE);
        node(start)->large.length = (uint32_t)count;
    } else {
        node(start)->unit.capacity = 0;
        fill_map(start + 1, count - 1, value);
    }
    slatei_reserve.map[start] = value;
    give_back_and_unlock();
    if (new_ground && value == SLATEI_MAP_LARGE)
        slatei_policy_populate(&pool.slice, start << SLATE_GRANULE_SHIFT_,
                               (start + count) << SLATE_GRANULE_SHIFT_);
    if (zero != NULL)
        *zero = is_zero;
    return start;
}

bool slatei_pool_fits(size_t count)
{
    slatei_pool_lock();
    bool fits = pool.free_granules >= count && best_fit(count) != 0;
    slatei_pool_unlock();
    return fits;
}

/* Returns a run of which `dirty` granules may be in memory.  The answer is the granule behind the
 * run that it is part of now. */
static size_t put_run(size_t first, size_t count, size_t dirty, bool zero)
{
    uint16_t *map = slatei_reserve.map;
    size_t top = top_granule();
    if (map[first - 1] == SLATEI_MAP_FREE) {
        size_t length = node(first - 1)->run.length;
        first -= length;
        count += length;
        dirty += node(first)->run.dirty;
        zero = zero && node(first)->run.zero;
        remove_run(first);
    }
    size_t end = first + count;
    if (end < top && map[end] == SLATEI_MAP_FREE) {
        count += node(end)->run.length;
        dirty += node(end)->run.dirty;
        zero = zero && node(end)->run.zero;
        remove_run(end);
    }
    if (first + count == top) {
        fill_map(first, count, SLATEI_MAP_FREE);
        pool.slice.top = first << SLATE_GRANULE_SHIFT_;
        return first;
    }
    add_run(first, count, dirty, zero);
    return first + count;
}

void slatei_pool_put_locked(size_t first, size_t count, bool zero)
{
    pool.put++;
    /* A run that give_back_and_unlock had in its hands knows better how much of it is in memory. */
    bool busy = slatei_reserve.map[first] == SLATEI_MAP_BUSY;
    put_run(first, count, zero ? 0 : busy ? node(first)->run.dirty : count, zero);
}

void slatei_pool_put(size_t first, size_t count, bool zero)
{
    slatei_pool_lock();
    slatei_pool_put_locked(first, count, zero);
    slatei_pool_unlock();
}

bool slatei_pool_resize(size_t first, size_t count, size_t wanted)
{
    if (wanted == count)
        return true;
    bool done = true;
    slatei_pool_lock();
    size_t end = first + count, top = top_granule();
    if (wanted < count) {
        put_run(first + wanted, count - wanted, count - wanted, false);
    } else {
        size_t more = wanted - count;
        if (end == top)
            done = raise_top(first + wanted);
        else if (slatei_reserve.map[end] == SLATEI_MAP_FREE && node(end)->run.length >= more)
            cut(end, end, more);
        else
            done = false;
        if (done)
            fill_map(end, more, SLATEI_MAP_INSIDE);
    }
    if (done)
        node(first)->large.length = (uint32_t)wanted;
    give_back_and_unlock();
    return done;
}

#define PURGE_BATCH 32

/* Takes the next runs from granule `*at` on that are not known to be zero out of the pool: dirty is
 * an estimate once a run has been cut.  Called with the lock. */
static unsigned collect_used(size_t *at, uint32_t found[PURGE_BATCH])
{
    unsigned count = 0;
    while (*at < top_granule() && count < PURGE_BATCH) {
        unsigned value = slatei_reserve.map[*at] & SLATEI_MAP_MASK;
        struct slatei_descriptor *run = node(*at);
        size_t length = 1;
        if (value == SLATEI_MAP_FREE) {
            length = run->run.length;
            if (!run->run.zero) {
                remove_run(*at);
                fill_map(*at, length, SLATEI_MAP_BUSY);
                found[count++] = (uint32_t)*at;
            }
        } else if (value == SLATEI_MAP_LARGE) {
            length = run->large.length;
        }
        *at += length;
    }
    return count;
}

size_t slatei_pool_purge(void)
{
    size_t bytes = 0, at = 1;
    uint32_t found[PURGE_BATCH];
    slatei_pool_lock();
    for (unsigned count; (count = collect_used(&at, found)) != 0;) {
        slatei_pool_unlock();
        for (unsigned i = 0; i < count; i++) {
            struct slatei_descriptor *run = node(found[i]);
            size_t from = (size_t)found[i] << SLATE_GRANULE_SHIFT_;
            size_t length = (size_t)run->run.length << SLATE_GRANULE_SHIFT_;
            if (slatei_policy_purge(&pool.slice, from, from + length, &bytes)) {
                run->run.zero = true;
                run->run.dirty = 0;
            }
        }
        slatei_pool_lock();
        /* The last one decides where the next look begins: it may have joined what follows. */
        for (unsigned i = 0; i < count; i++)
            at = put_run(found[i], node(found[i])->run.length, node(found[i])->run.dirty,
                         node(found[i])->run.zero);
    }
    /* The last huge page reaches beyond what was ever carved. */
    size_t end = slatei_round_up(pool.high << SLATE_GRANULE_SHIFT_, slatei_os_huge_page_size());
    if (end > pool.slice.limit)
        end = pool.slice.limit;
    if (pool.slice.top < end)
        slatei_policy_purge(&pool.slice, pool.slice.top, end, &bytes);
    pool.used_top = top_granule();
    bytes += slatei_reserve_purge(top_granule(), pool.high);
    slatei_pool_unlock();
    return bytes;
}

size_t slatei_pool_idle(void)
{
    slatei_pool_lock();
    size_t top = top_granule(), granules = pool.dirty_granules;
    if (pool.used_top > top)
        granules += pool.used_top - top;
    slatei_pool_unlock();
    return granules << SLATE_GRANULE_SHIFT_;
}

void slatei_pool_count(struct slatei_pool_counts *counts)
{
    slatei_pool_lock();
    counts->top = pool.slice.top;
    counts->high = pool.high << SLATE_GRANULE_SHIFT_;
    counts->committed = pool.slice.limit;
    counts->free_runs = pool.free_granules << SLATE_GRANULE_SHIFT_;
    counts->taken = pool.taken;
    counts->put = pool.put;
    counts->contended = pool.contended;
    slatei_pool_unlock();
}
