/* lib/pool.h - the pool: runs of granules for the whole process.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_POOL_H
#define SLATEI_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the pool up in the reservation.  Called once, before anything else here. */
void slatei_pool_start(void);

/* The pool's lock, for several puts at once and for fork.  Held briefly; never across a call that
 * waits. */
void slatei_pool_lock(void);
void slatei_pool_unlock(void);

/* Takes `count` granules in a row whose address is a multiple of `alignment` granules (a power of
 * two), the best fit among the free runs or else new ground, and writes `value` into their map: for
 * SLATEI_MAP_LARGE the further granules get SLATEI_MAP_INSIDE and the descriptor the length. `zero`
 * (may be NULL) receives whether every byte of the run is zero.  Returns the first granule; or 0
 * when there is no room or the system gives no memory. */
size_t slatei_pool_take(size_t count, size_t alignment, uint16_t value, bool *zero);

/* Whether a free run holds `count` granules: else a take would need new ground. */
bool slatei_pool_fits(size_t count);

/* Puts a run back.  It is the pool's at once.  `zero`: every byte of it is zero. */
void slatei_pool_put(size_t first, size_t count, bool zero);
/* The same for a caller that holds the lock. */
void slatei_pool_put_locked(size_t first, size_t count, bool zero);

/* Makes a large block of `count` granules `wanted` granules long where it is.  False when something
 * is in the way. */
bool slatei_pool_resize(size_t first, size_t count, size_t wanted);

/* Gives back every page of free runs and above the last run.  Returns the bytes. */
size_t slatei_pool_purge(void);

/* About how many bytes are in memory that no block is in: what a purge would give back. */
size_t slatei_pool_idle(void);

/* What the pool holds, bytes. */
struct slatei_pool_counts {
    size_t top;       /* carved */
    size_t high;      /* the most that was ever carved */
    size_t committed; /* usable */
    size_t free_runs; /* in free runs below top */
    uint64_t taken, put, contended;
};
void slatei_pool_count(struct slatei_pool_counts *counts);

#endif
