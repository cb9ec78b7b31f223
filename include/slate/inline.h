/* slate/inline.h - the inline fast paths, and the frozen front part of a thread arena that they
 * work on.
 *
 * SPDX-License-Identifier: MIT
 *
 * Include <slate.h>, not this file.  The layout of the structs here is part of the binary
 * interface: programs have it compiled in.  Names that end in an underscore are for these inlines
 * alone.
 *
 * Every function here exists twice: inline, and as a real symbol with the same body in the library.
 * slate_realloc is not here: its fast way is longer than a call, and inlined it took registers from
 * the loops around it.
 */
#ifndef SLATE_INLINE_H
#define SLATE_INLINE_H

#include <slate/class.h>
#include <slate/track.h>

#define SLATE_LIKELY_(x) __builtin_expect(!!(x), 1)
#define SLATE_UNLIKELY_(x) __builtin_expect(!!(x), 0)
/* Not static: C99 forbids an inline function with external linkage to call a static one. */
#define SLATE_TWIN_ extern inline __attribute__((gnu_inline, always_inline))

/* A granule is 4 KiB: the unit in which the granule map counts. */
#define SLATE_GRANULE_SHIFT_ 12

/* A value of the granule map is the owning arena's number times 64 plus: 0 none or free, 1 + class,
 * or one above the last class for large blocks.  So (value - tag) is the class for the arena's own
 * small blocks and at least SLATE_CLASSES (unsigned) for everything else. */
#define SLATE_MAP_SHIFT_ 6

/* A free block while it waits on its owner's stack of foreign frees. */
struct slate_block_ {
    struct slate_block_ *next;
};

/* One size class of one arena, as far as the fast paths go.  Touched by the arena's owner alone.
 *   size == slate_class_size_(index of the entry)
 *   newest is NULL or the block freed last; the ones before it are on a stack of addresses
 *   bit i of word set: word_base + i * size is a free place, not on the stack
 * A stack of addresses and not a list through the blocks: neither a pop nor a flush then waits for
 * a block that has left the cache.  The newest is apart so that its address is one load away, and
 * an arena of zeroes is an empty one. */
struct slate_entry_ {
    void *newest;
    uint64_t word;   /* free places of the current unit */
    char *word_base; /* the place of bit 0 */
    uint64_t size;   /* block size in bytes */
};

/* What stands behind an entry: as large as the entry, so that one address calculation serves both.
 * Of it the fast paths need top and limit.
 *   *top is the block freed before newest, NULL if there is none; when newest is NULL, top is one
 *   slot lower, and that slot is never read */
struct slate_behind_ {
    void **top;
    void **limit;       /* a push that takes top there flushes the stack */
    uint32_t current;   /* the unit that word comes from, its first granule; 0 none */
    uint32_t available; /* first of the list of units with free places; 0 none */
    uint32_t units;     /* units the class holds */
    uint16_t next_word; /* index of the word to load after this one */
    uint16_t fresh;     /* not 0: word's places were never used, so they are zero */
};

/* The front part of a thread arena.  base, span, map and tag never change once the arena is
 * claimed. */
struct slate_arena_ {
    uintptr_t base;      /* first byte of the reservation */
    size_t span;         /* bytes of it that blocks come from; 0 in the empty arena */
    const uint16_t *map; /* the granule map */
    uint32_t tag;        /* the map's value of the arena's class 0 */
    uint32_t number;     /* of the arena, from 0 */
    struct slate_entry_ entry[SLATE_CLASSES];
    struct slate_behind_ behind[SLATE_CLASSES];
};

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's arena; an empty one, from which nothing can be had, before the first use.
 * SLATE_STATIC, for programs that link libslate.a, saves the load of the variable's offset. */
#ifdef SLATE_STATIC
#define SLATE_TLS_ __attribute__((tls_model("local-exec")))
#else
#define SLATE_TLS_ __attribute__((tls_model("initial-exec")))
#endif
SLATE_API extern __thread struct slate_arena_ *slate_self_ SLATE_TLS_;

SLATE_API void *slate_alloc_slow_(size_t size) __attribute__((malloc, alloc_size(1)));
SLATE_API void *slate_zalloc_any_(size_t size) __attribute__((malloc, alloc_size(1)));
SLATE_API void slate_free_slow_(void *block);
SLATE_API void slate_flush_(struct slate_entry_ *entry);
SLATE_API size_t slate_usable_size_slow_(const void *block);

/* 16 bytes, cleared at once; blocks are aligned to them. */
typedef long long slate_line_ __attribute__((vector_size(16), may_alias));

/* The index of the lowest set bit; word is not 0.  The compiler's built-in clears the result first,
 * to break a dependency that processors since 2015 do not have. */
SLATE_TWIN_ uint64_t slate_lowest_(uint64_t word)
{
#if defined(__x86_64__)
    uint64_t place;
    __asm__("rep bsfq %1, %0" : "=r"(place) : "rm"(word) : "cc");
    return place;
#else
    return (uint64_t)__builtin_ctzll(word);
#endif
}

/* The empty asm keeps the compiler from making a call of memset out of the loop: for at
 * most 512 bytes the loop is faster. */
SLATE_TWIN_ void slate_clear_(void *block, size_t size)
{
    slate_line_ *line = (slate_line_ *)block;
    slate_line_ *end = line + (size + 15) / 16;
    const slate_line_ zero = {0, 0};
    for (; line < end; line++) {
        __asm__("" : "+r"(line));
        *line = zero;
    }
}

SLATE_TWIN_ void *slate_alloc_inline_(size_t size)
{
    if (SLATE_LIKELY_(size <= SLATE_CLASS_MAX)) {
        struct slate_arena_ *arena = slate_self_;
        uint64_t index = slate_class_of_(size);
        struct slate_entry_ *entry = &arena->entry[index];
        void *block = entry->newest;
        if (SLATE_LIKELY_(block != NULL)) {
            entry->newest = *arena->behind[index].top--;
            SLATE_TRACK_ALLOC_(block, entry->size);
            return block;
        }
        uint64_t word = entry->word;
        if (SLATE_LIKELY_(word != 0)) {
            uint64_t place = slate_lowest_(word);
            entry->word = word & ~(UINT64_C(1) << place);
            char *fresh = entry->word_base + place * entry->size;
            SLATE_TRACK_ALLOC_(fresh, entry->size);
            return fresh;
        }
    }
    return slate_alloc_slow_(size);
}

/* Clearing pays inline where the size is known; elsewhere the loop would only crowd the caller. */
SLATE_TWIN_ void *slate_zalloc_inline_(size_t size)
{
    if (!__builtin_constant_p(size) || size > SLATE_STEP_MAX)
        return slate_zalloc_any_(size);
    void *block = slate_alloc_inline_(size);
    if (SLATE_LIKELY_(block != NULL))
        slate_clear_(block, size);
    return block;
}

/* Pushes a block of the arena's own class `index`. */
SLATE_TWIN_ void slate_push_(struct slate_arena_ *arena, uint64_t index, void *block)
{
    struct slate_entry_ *entry = &arena->entry[index];
    struct slate_behind_ *behind = &arena->behind[index];
    void **top = behind->top + 1;
    *top = entry->newest;
    behind->top = top;
    entry->newest = block;
    SLATE_TRACK_FREE_(block, entry->size);
    if (SLATE_UNLIKELY_(top >= behind->limit))
        slate_flush_(entry);
}

SLATE_TWIN_ void slate_free_inline_(void *block)
{
    struct slate_arena_ *arena = slate_self_;
    uintptr_t offset = (uintptr_t)block - arena->base;
    if (SLATE_LIKELY_(offset < arena->span)) {
        uint64_t index = (uint32_t)arena->map[offset >> SLATE_GRANULE_SHIFT_] - arena->tag;
        if (SLATE_LIKELY_(index < SLATE_CLASSES)) {
            slate_push_(arena, index, block);
            return;
        }
    }
    slate_free_slow_(block);
}

SLATE_TWIN_ size_t slate_usable_size_inline_(const void *block)
{
    const struct slate_arena_ *arena = slate_self_;
    uintptr_t offset = (uintptr_t)block - arena->base;
    if (SLATE_LIKELY_(offset < arena->span)) {
        uint32_t value = arena->map[offset >> SLATE_GRANULE_SHIFT_];
        uint32_t index = (value & ((1u << SLATE_MAP_SHIFT_) - 1)) - 1;
        if (SLATE_LIKELY_(index < SLATE_CLASSES))
            return arena->entry[index].size;
    }
    return slate_usable_size_slow_(block);
}

#ifndef SLATE_NO_INLINE
#define SLATE_INLINE_ extern inline __attribute__((gnu_inline))

SLATE_INLINE_ void *slate_alloc(size_t size) { return slate_alloc_inline_(size); }

SLATE_INLINE_ void *slate_zalloc(size_t size) { return slate_zalloc_inline_(size); }

SLATE_INLINE_ void slate_free(void *block) { slate_free_inline_(block); }

SLATE_INLINE_ void slate_free_sized(void *block, size_t size)
{
    (void)size;
    slate_free_inline_(block);
}

SLATE_INLINE_ size_t slate_usable_size(const void *block)
{
    return slate_usable_size_inline_(block);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
