/* lib/large.h - blocks above the largest class.
 *
 * SPDX-License-Identifier: MIT
 *
 * A large block is a run of the pool; one that the pool has no room for is a mapping of its own,
 * outside the reservation. All functions may be called from any thread.
 */
#ifndef SLATEI_LARGE_H
#define SLATEI_LARGE_H

#include <stdbool.h>
#include <stddef.h>

#include "arena.h"

/* A block of at least `size` bytes, which is above 0, aligned to `alignment` bytes, a power of two.
 * `zero` (may be NULL) receives whether all of it is zero.  NULL when the system gives no memory.
 */
void *slatei_large_alloc(size_t size, size_t alignment, bool *zero);

/* The block's size in whole granules; 0 if it is not a large block. */
size_t slatei_large_usable(const void *block);

/* Ends a block.  False if it is not a large block. */
bool slatei_large_free(void *block);

/* A large block of that size that the arena kept, for the arena's owner; NULL if it has none. */
void *slatei_large_take_spare(struct slatei_arena *arena, size_t size);
/* Keeps a large block that has ended, for the arena's owner.  False if it does not. */
bool slatei_large_keep_spare(struct slatei_arena *arena, void *block);
/* Puts all kept blocks back into the pool, for the arena's owner. */
void slatei_large_release_spares(struct slatei_arena *arena);

/* Makes the block at least `size` bytes long where it is.  False when that cannot be. */
bool slatei_large_resize(void *block, size_t size);

/* A block of at least `size` bytes that holds what `block` holds, moved by its page tables where
 * that can be, else copied; `block` has ended then.  NULL when the block is too small for that to
 * pay, or for want of memory: then nothing has changed. */
void *slatei_large_move(void *block, size_t size);

/* Blocks that are mappings of their own whatever their size: they change in size without a copy.
 * The functions below are for such blocks alone.  A new one may be larger than asked
 * (slatei_large_usable tells) and is not zero. */
void *slatei_large_alloc_own(size_t size);
/* Bytes of the mapping that has ended and is kept for the next such block; gives it back to the
 * system, and returns how much of it was in memory. */
size_t slatei_large_spare_own(void);
size_t slatei_large_purge(void);
/* Makes the block at least `size` bytes long, where it is or by moving its page tables; what it
 * holds is copied only if the kernel cannot do that, and `copied` receives how many bytes were.
 * Returns where it is now; or NULL for want of memory, and then it is as it was. */
void *slatei_large_resize_own(void *block, size_t size, size_t *copied);
/* Gives back the first `front` bytes of the block, whole pages and not all of it: it begins behind
 * them now. False when that cannot be; then nothing has changed. */
bool slatei_large_cut_own(void *block, size_t front);

/* Bytes in mappings of their own, how many mappings, and how many of the bytes are in memory. */
void slatei_large_count(size_t *bytes, size_t *blocks, size_t *resident);

/* Around fork. */
void slatei_large_lock(void);
void slatei_large_unlock(void);

#endif
