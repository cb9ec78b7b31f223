/* slate.h - the whole interface of slate, an arena allocator for compilers; regions are in
 * <slate/region.h>, append buffers in <slate/buffer.h>, scratch in <slate/scratch.h>.
 *
 * SPDX-License-Identifier: MIT
 *
 * All sizes are in bytes.  Every function may be called from any thread at any time unless its
 * comment says otherwise, and leaves errno alone when it succeeds.  None of them exits, prints
 * (unless SLATE_VERBOSE or SLATE_STATS asks for it) or calls malloc.  The functions that
 * <slate/inline.h> defines inline exist as real symbols too, so their addresses can be taken and a
 * foreign-function interface can call them; define SLATE_NO_INLINE before including this header to
 * call those.
 */
#ifndef SLATE_H
#define SLATE_H

#include <stddef.h>
#include <stdint.h>

#define SLATE_VERSION_MAJOR 0
#define SLATE_VERSION_MINOR 1
#define SLATE_VERSION_PATCH 0
#define SLATE_VERSION "0.1.0"

#include <slate/class.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLATE_API __attribute__((visibility("default")))

/* Allocates a block of at least `size` bytes, aligned to 16 bytes; its contents are not set.  A
 * `size` of 0 gives a block of its own like any other. Returns the block; or NULL with errno ENOMEM
 * when the host gives no more memory (or `size` is above PTRDIFF_MAX); the heap is unchanged and
 * usable then. Ownership: the caller's, until slate_free, slate_free_sized or slate_realloc ends
 * it; on any thread. */
SLATE_API void *slate_alloc(size_t size) __attribute__((malloc, alloc_size(1), warn_unused_result));

/* Like slate_alloc, but the first `size` bytes of the block are zero.  Memory that was never used
 * before is not cleared again. */
SLATE_API void *slate_zalloc(size_t size)
    __attribute__((malloc, alloc_size(1), warn_unused_result));

/* Changes the size of `block` to `size` bytes.  The contents up to the smaller of the two sizes
 * stay the same; what is behind them is not set.  The block may move: then the old address has
 * ended, as by slate_free.  `block` NULL makes a new block.  A `size` of 0 gives a block of size 0,
 * it does not free (unlike the realloc of some C libraries). An alignment above 16 bytes that
 * slate_aligned_alloc gave is not kept when the block moves. Returns the block; or NULL with errno
 * ENOMEM, and then `block` is as it was. */
SLATE_API void *slate_realloc(void *block, size_t size)
    __attribute__((alloc_size(2), warn_unused_result));

/* Ends the life of `block`, which slate_alloc, slate_zalloc, slate_realloc or slate_aligned_alloc
 * returned and which has not ended yet.  NULL is allowed and does nothing.  Any thread may end any
 * block.  Keeps errno. */
SLATE_API void slate_free(void *block);

/* Like slate_free for a caller that knows the size: `size` is what the block was last asked with
 * (anything from that up to slate_usable_size is right as well).  A different size is a fault of
 * the program. */
SLATE_API void slate_free_sized(void *block, size_t size);

/* Allocates a block of at least `size` bytes whose address is a multiple of `alignment`, a power of
 * two from 1 to 1 GiB (2^30); anything up to 16 is 16.  `size` need not be a multiple of it.
 * Returns the block, to be ended like any other; or NULL with errno EINVAL for another alignment,
 * or ENOMEM. */
SLATE_API void *slate_aligned_alloc(size_t alignment, size_t size)
    __attribute__((malloc, alloc_size(2), alloc_align(1), warn_unused_result));

/* The bytes of `block` that the program may use: at least what it asked for.  NULL gives 0.  The
 * answer does not change while the block lives.  Never fails. */
SLATE_API size_t slate_usable_size(const void *block);

/* Gives back to the system the pages that hold no live block, as far as the calling thread can
 * reach them: in its own arena, in parked arenas and in the pool.  Returns the bytes given back;
 * never fails. */
SLATE_API size_t slate_purge(void);

/* Sets the tunable `name` (as `slate --help-tunables` lists them, "SLATE_SWITCH" for example) to
 * the text `value`, as if it stood in the environment; it wins over the environment.  To be called
 * before the first allocation, on one thread. `name` and `value` are read only during the call.
 * Returns 0; or EINVAL for an unknown name or a bad value (nothing changes), or EBUSY once the
 * first allocation has been made.  Does not set errno. */
SLATE_API int slate_tune(const char *name, const char *value);

/* What one size class holds, in all arenas; bytes. */
struct slate_class_stats {
    size_t size;   /* of a block */
    size_t units;  /* in units: the sum of the four below */
    size_t in_use; /* in blocks of the program, and on the short stacks of other running threads */
    size_t free_list; /* on the stacks of free blocks that the calling thread can read: its own */
    size_t free_unit; /* in free places of units */
    size_t tails;     /* at the ends of units, too short for a block */
};

/* What the heap holds; bytes unless said otherwise.  Later versions add at the end.
 *   in_use == large + the sum of the classes' in_use
 *   resident == in_use + free_list + free_unit + tails + free_runs + above_top + own_mappings +
 * tables - absent */
struct slate_stats {
    size_t reserved;  /* address space for blocks */
    size_t committed; /* of it, usable */
    size_t in_use;    /* blocks, in their class's size or whole granules */
    size_t large;     /* of it, large blocks in the pool */
    size_t free_list; /* the classes' sums */
    size_t free_unit;
    size_t tails;
    size_t free_runs;    /* free runs of the pool */
    size_t above_top;    /* usable above the pool's last run and the slices' last units */
    size_t own_mappings; /* blocks too large for the pool */
    size_t tables;       /* in memory for slate's own tables */
    size_t absent;       /* of all the above but tables, not in memory */
    size_t resident;     /* in memory for slate in all */
    size_t huge;         /* of it, on huge pages */
    size_t arenas;       /* thread arenas that were ever used; number */
    uint64_t refills;    /* slow paths of small allocations; number */
    uint64_t flushes;    /* of stacks; number */
    uint64_t flushed;    /* blocks that flushes put back; number */
    uint64_t units_taken, units_returned; /* number */
    uint64_t contended;                   /* waits for the pool's lock; number */
    struct slate_class_stats classes[SLATE_CLASSES];
};

/* Fills in `stats`, at most `size` bytes of it (sizeof *stats), with what the heap holds now. While
 * other threads allocate, it is near the truth only.  Takes about 5 ms for each 100 MiB on small
 * pages, 0.3 ms on huge ones.  Returns 0; or EINVAL for a `size` of 0.  Before the first allocation
 * everything is 0. */
SLATE_API int slate_stats(struct slate_stats *stats, size_t size);

/* The version of the library that runs, "0.1.0" for example; a constant that lives for ever.
 * SLATE_VERSION is that of the header. */
SLATE_API const char *slate_version(void);

/* A tunable: what `slate --help-tunables` prints. */
struct slate_tunable {
    const char *name;          /* of the environment variable */
    const char *unit;          /* "bytes", "arenas", "word" ... */
    const char *range;         /* what is allowed */
    const char *default_value; /* what holds when it is not set */
    const char *help;          /* one sentence */
};

/* The table of all tunables; it lives for ever.  `count` receives how many there are. */
SLATE_API const struct slate_tunable *slate_tunables(size_t *count);

#ifdef __cplusplus
}
#endif

#include <slate/inline.h>
/* These use the one above. */
#include <slate/buffer.h>
#include <slate/region.h>
#include <slate/scratch.h>

#endif
