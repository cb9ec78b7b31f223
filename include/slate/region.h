/* slate/region.h - regions: memory for one phase, handed out by raising a pointer, ended all at
 * once.
 *
 * SPDX-License-Identifier: MIT
 *
 * Include <slate.h>, not this file.  All sizes are in bytes.
 *
 * A region may be used by one thread at a time, and created, used and destroyed on different ones;
 * the program sees to it that one thread's use comes before the next one's.  Different regions are
 * independent of each other.  No function sets errno when it succeeds.
 *
 * What ends what:
 *   slate_region_rewind   every block that was made, or changed in size, since the mark, and with
 *                         it the mark itself and all marks made since; older blocks and marks stay
 *   slate_region_reset    every block and every mark; the region itself stays
 *   slate_region_destroy  every block, every mark and the region
 * After that nothing may read or write the blocks; with AddressSanitizer or Valgrind (see
 * <slate/track.h>) each such access is reported.
 *
 *     struct slate_region *region = slate_region_create();
 *     struct type *number = slate_region_new(region, struct type);
 *
 *     struct slate_region_mark mark = slate_region_mark(region);
 *     char *text = slate_region_printf(region, "%s[%u]", name, index);
 *     puts(text);                           right: nothing has ended
 *     slate_region_rewind(region, mark);
 *     use(number);                          right: older than the mark
 *     puts(text);                           WRONG: made since the mark, it has ended
 *
 *     struct slate_region_mark outer = slate_region_mark(region);
 *     struct slate_region_mark inner = slate_region_mark(region);
 *     slate_region_rewind(region, outer);
 *     slate_region_rewind(region, inner);   WRONG: that mark ended with the older one
 *     slate_region_destroy(region);
 */
#ifndef SLATE_REGION_H
#define SLATE_REGION_H

#include <stdarg.h>

/* The front part of a region, which the inline functions work on.
 *   bump <= limit; both are multiples of SLATE_REGION_ALIGN, or both NULL
 *   [bump, limit) of the current chunk is free */
struct slate_region {
    char *bump;
    char *limit;
    size_t padding; /* bytes of carved memory that nobody asked for */
};

/* What blocks of a region are aligned to: enough for pointers, integers and double. */
#define SLATE_REGION_ALIGN ((size_t)8)

/* A place in a region to which it can go back.  Only the library looks inside. */
struct slate_region_mark {
    char *bump;
    void *chunk, *deferred;
    size_t own, padding, carved, depth;
};

/* What a region holds; bytes unless said otherwise.  Later versions add at the end.
 *   asked <= carved <= kept */
struct slate_region_stats {
    size_t asked;  /* in blocks that have not ended, as asked for */
    size_t carved; /* the same with what alignment and clean-up calls added */
    size_t kept;   /* taken from the heap: chunks, used or not, and blocks of their own */
    size_t limit;  /* of kept; SIZE_MAX without one */
    size_t chunks; /* number, with those kept for later */
    size_t own;    /* blocks of their own; number */
    size_t marks;  /* marks that have not ended; number */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an empty region; it takes memory for blocks with the first of them.  Returns the region, to
 * be ended with slate_region_destroy; or NULL with errno ENOMEM. */
SLATE_API struct slate_region *slate_region_create(void) __attribute__((warn_unused_result));

/* Runs the deferred calls, newest first, then ends the region and all that is in it.  `region` NULL
 * is allowed and does nothing.  Keeps errno (but for what the calls do). */
SLATE_API void slate_region_destroy(struct slate_region *region);

/* Allocates `size` bytes, aligned to SLATE_REGION_ALIGN, not set.  Of a size of 0 no byte may be
 * used, but the address is the block's alone.  Returns the block, which lives until it is rewound,
 * or the region is reset or destroyed; or NULL with errno ENOMEM when the host gives no memory or
 * the region's limit stands in the way; the region is as it was then. */
SLATE_API void *slate_region_alloc(struct slate_region *region, size_t size)
    __attribute__((malloc, alloc_size(2), assume_aligned(8), warn_unused_result));

/* The same, all bytes zero. */
SLATE_API void *slate_region_zalloc(struct slate_region *region, size_t size)
    __attribute__((malloc, alloc_size(2), assume_aligned(8), warn_unused_result));

/* The same as slate_region_alloc, at a multiple of `alignment`, a power of two from 1 to 1 MiB.
 * NULL with errno EINVAL for another alignment. */
SLATE_API void *slate_region_aligned(struct slate_region *region, size_t alignment, size_t size)
    __attribute__((malloc, alloc_size(3), alloc_align(2), warn_unused_result));

/* An object of that type, not set: TYPE *; or NULL as above. */
#define slate_region_new(region, type)                                                             \
    ((type *)slate_region_aligned((region), __alignof__(type), sizeof(type)))

/* Changes the size of `block`, which has `old_size` bytes (what it was last asked with), to `size`
 * bytes.  The contents up to the smaller of the two sizes stay.  The region's newest block stays
 * where it is while its chunk has room; any block stays where it is when it shrinks; else the
 * contents are copied to a new block, and the old address has ended.  `block` NULL makes a new
 * block.  An alignment above SLATE_REGION_ALIGN is not kept when the block moves.  Returns the
 * block; or NULL with errno ENOMEM, and then `block` is as it was. */
SLATE_API void *slate_region_realloc(struct slate_region *region, void *block, size_t old_size,
                                     size_t size)
    __attribute__((alloc_size(4), assume_aligned(8), warn_unused_result));

/* A copy of `text` with its terminating zero byte; of at most its first `most` bytes, and a zero
 * byte; of `size` bytes at `data`.  Blocks like any other, or NULL with errno ENOMEM. */
SLATE_API char *slate_region_strdup(struct slate_region *region, const char *text)
    __attribute__((malloc, nonnull(2), warn_unused_result));
SLATE_API char *slate_region_strndup(struct slate_region *region, const char *text, size_t most)
    __attribute__((malloc, nonnull(2), warn_unused_result));
SLATE_API void *slate_region_memdup(struct slate_region *region, const void *data, size_t size)
    __attribute__((malloc, alloc_size(3), warn_unused_result));

/* The text that `format` and the arguments make, as sprintf has it, with a zero byte.  A block like
 * any other; or NULL with errno ENOMEM, or as vsnprintf set it for a format that it refuses. */
SLATE_API char *slate_region_printf(struct slate_region *region, const char *format, ...)
    __attribute__((malloc, format(printf, 2, 3), warn_unused_result));
SLATE_API char *slate_region_vprintf(struct slate_region *region, const char *format,
                                     va_list arguments)
    __attribute__((malloc, format(printf, 2, 0), warn_unused_result));

/* Marks the region's present state.  Marks nest.  A mark ends when it, or an older one, is rewound
 * to, and with slate_region_reset.  Never fails. */
SLATE_API struct slate_region_mark slate_region_mark(struct slate_region *region)
    __attribute__((warn_unused_result));

/* Runs the calls deferred since `mark`, newest first, then takes the region back to it: see the top
 * of this file for what ends.  Takes the same time however much was allocated, when no chunk and no
 * block of its own was added since the mark.  `mark` must not have ended. */
SLATE_API void slate_region_rewind(struct slate_region *region, struct slate_region_mark mark);

/* Runs all deferred calls, newest first, then empties the region.  Keeps at most `keep` bytes of
 * its chunks for the blocks to come and gives back the rest; 0 keeps none.  The limit stays. */
SLATE_API void slate_region_reset(struct slate_region *region, size_t keep);

/* Sets how many bytes the region may take from the heap for blocks, SIZE_MAX (which a new region
 * has) for any number.  An allocation that would pass it returns NULL with errno ENOMEM; the region
 * stays usable, and smaller blocks may still fit.  A limit below what the region holds only keeps
 * it from growing. */
SLATE_API void slate_region_limit(struct slate_region *region, size_t bytes);

/* Has `call(argument)` run when the present is rewound, or the region reset or destroyed: before
 * any memory ends, newest call first.  The call may use the region, but not rewind, reset or
 * destroy it; what it allocates there ends at once.  Returns 0; or ENOMEM, and then nothing will be
 * called.  Does not set errno. */
SLATE_API int slate_region_defer(struct slate_region *region, void (*call)(void *argument),
                                 void *argument) __attribute__((warn_unused_result, nonnull(2)));

/* Fills in `stats`, at most `size` bytes of it (sizeof *stats).  Returns 0; or EINVAL for a `size`
 * of 0. */
SLATE_API int slate_region_stats(const struct slate_region *region,
                                 struct slate_region_stats *stats, size_t size);

/* For the inlines below: what they have no room for. */
SLATE_API void *slate_region_slow_(struct slate_region *region, size_t alignment, size_t size)
    __attribute__((malloc, alloc_size(3)));

/* A constant size of up to this many bytes needs no check against overflow: no chunk ends so near
 * the end of the address space. */
#define SLATE_REGION_CONSTANT_ ((size_t)1 << 20)

SLATE_TWIN_ void *slate_region_alloc_inline_(struct slate_region *region, size_t size)
{
    char *block = region->bump;
    size_t rounded = (size + SLATE_REGION_ALIGN - 1) & ~(SLATE_REGION_ALIGN - 1);
    if (__builtin_constant_p(size) && size != 0 && size <= SLATE_REGION_CONSTANT_) {
        char *end = (char *)((uintptr_t)block + rounded);
        if (SLATE_UNLIKELY_(end > region->limit))
            return slate_region_slow_(region, SLATE_REGION_ALIGN, size);
        region->bump = end;
    } else {
        /* A size of 0 wraps around, and is the slow path's. */
        if (SLATE_UNLIKELY_(size - 1 >= (uintptr_t)region->limit - (uintptr_t)block))
            return slate_region_slow_(region, SLATE_REGION_ALIGN, size);
        region->bump = block + rounded;
    }
    if (!__builtin_constant_p(size) || rounded != size)
        region->padding += rounded - size;
    SLATE_TRACK_ALLOC_(block, size);
    return block;
}

SLATE_TWIN_ void *slate_region_aligned_inline_(struct slate_region *region, size_t alignment,
                                               size_t size)
{
    if (__builtin_constant_p(alignment) && (alignment & (alignment - 1)) == 0 && alignment != 0 &&
        alignment <= SLATE_REGION_ALIGN)
        return slate_region_alloc_inline_(region, size);
    if (__builtin_constant_p(alignment) && (alignment & (alignment - 1)) == 0 && alignment != 0 &&
        alignment <= 4096 && __builtin_constant_p(size) && size != 0 &&
        size <= SLATE_REGION_CONSTANT_) {
        uintptr_t bump = (uintptr_t)region->bump;
        uintptr_t start = (bump + alignment - 1) & ~(alignment - 1);
        uintptr_t end = start + ((size + SLATE_REGION_ALIGN - 1) & ~(SLATE_REGION_ALIGN - 1));
        if (SLATE_LIKELY_(end <= (uintptr_t)region->limit)) {
            char *block = region->bump + (start - bump);
            region->bump += end - bump;
            region->padding += end - bump - size;
            SLATE_TRACK_ALLOC_(block, size);
            return block;
        }
    }
    return slate_region_slow_(region, alignment, size);
}

SLATE_TWIN_ void *slate_region_zalloc_inline_(struct slate_region *region, size_t size)
{
    void *block = slate_region_alloc_inline_(region, size);
    if (SLATE_LIKELY_(block != NULL))
        __builtin_memset(block, 0, size);
    return block;
}

#ifndef SLATE_NO_INLINE
SLATE_INLINE_ void *slate_region_alloc(struct slate_region *region, size_t size)
{
    return slate_region_alloc_inline_(region, size);
}

SLATE_INLINE_ void *slate_region_zalloc(struct slate_region *region, size_t size)
{
    return slate_region_zalloc_inline_(region, size);
}

SLATE_INLINE_ void *slate_region_aligned(struct slate_region *region, size_t alignment, size_t size)
{
    return slate_region_aligned_inline_(region, alignment, size);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
