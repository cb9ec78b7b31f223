/* lib/region.c - regions: chunks, blocks of their own, marks, deferred calls.
 *
 * SPDX-License-Identifier: MIT
 */
#include "region.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "assert.h"

/* Chunks double from the first size to the last (bytes): small regions stay small, and what a chunk
 * of a large one costs, and loses at its end, is no longer seen. */
#define CHUNK_LEAST ((size_t)4 << 10)
#define CHUNK_MOST ((size_t)1 << 20)
/* A request of more than 1/4 of the next chunk, if that is not the first, gets a block of its own:
 * so what a chunk loses at its end when a request does not fit is less than that. */
#define OWN_SHARE 4
#define ALIGNMENT_MOST ((size_t)1 << 20)

/* At the front of each chunk, and of each block of its own. */
struct chunk {
    struct chunk *previous; /* the one before it; of chunks kept for later, the next smaller */
    size_t size;            /* all of it, with this header */
};

struct own {
    struct own *previous;
    size_t size;   /* all of the heap's block */
    size_t serial; /* blocks of a region's own are numbered from 1 as they are made */
    size_t offset; /* of the data */
    size_t carved; /* of the data, rounded up */
};

/* A deferred call; it lies in the region. */
struct deferred {
    struct deferred *previous;
    void (*call)(void *argument);
    void *argument;
};

_Static_assert(sizeof(struct chunk) % SLATE_REGION_ALIGN == 0, "blocks behind it are aligned");
_Static_assert(sizeof(struct own) % SLATE_REGION_ALIGN == 0, "and these");

/* Touched by one thread at a time; the program sees to that.
 *   front.bump and front.limit are of `current`; NULL without one
 *   kept == sum of the sizes of all chunks and own blocks + charged
 *   asked == carved - padding */
struct region {
    struct slate_region front;
    struct chunk *current; /* the newest chunk in use */
    struct chunk *later;   /* empty ones, largest first */
    struct own *own;       /* newest first; the serials fall */
    struct deferred *deferred;
    size_t carved_before; /* in chunks before the current one, and in own blocks */
    size_t kept;
    size_t charged;
    size_t limit;
    size_t chunk_least;
    size_t chunks, owns; /* numbers */
    size_t serial;       /* of the newest own block that was ever made */
    size_t marks;
};

static inline struct region *whole(struct slate_region *region)
{
    return (struct region *)(void *)region;
}

static inline size_t rounded(size_t size)
{
    return size == 0 ? SLATE_REGION_ALIGN
                     : (size + SLATE_REGION_ALIGN - 1) & ~(SLATE_REGION_ALIGN - 1);
}

static inline char *data_of(struct chunk *chunk) { return (char *)(chunk + 1); }

static void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* ---- chunks */

static size_t carved(const struct region *region)
{
    return region->carved_before +
           (region->current != NULL ? (size_t)(region->front.bump - data_of(region->current)) : 0);
}

static inline bool within_limit(const struct region *region, size_t more)
{
    return more <= region->limit && region->kept <= region->limit - more;
}

/* Makes `chunk` the current one, empty. */
static void enter_chunk(struct region *region, struct chunk *chunk)
{
    region->carved_before = carved(region);
    chunk->previous = region->current;
    region->current = chunk;
    region->front.bump = data_of(chunk);
    region->front.limit = (char *)chunk + (chunk->size & ~(SLATE_REGION_ALIGN - 1));
}

static void free_chunk(struct region *region, struct chunk *chunk)
{
    region->kept -= chunk->size;
    region->chunks--;
    SLATE_TRACK_ALLOC_(chunk, chunk->size);
    slate_free(chunk);
}

static size_t next_chunk_size(const struct region *region)
{
    size_t size = region->current != NULL ? region->current->size * 2 : CHUNK_LEAST;
    if (size < region->chunk_least)
        size = region->chunk_least;
    return size < CHUNK_MOST ? size : CHUNK_MOST;
}

/* A new chunk with at least `least` bytes behind its header, `wished` in all if the limit and the
 * host allow it. */
static bool add_chunk(struct region *region, size_t least, size_t wished)
{
    struct chunk *chunk = NULL;
    size_t need = least + sizeof *chunk;
    for (size_t size = wished; chunk == NULL; size = size / 2 > need ? size / 2 : need) {
        if (within_limit(region, size))
            chunk = slate_alloc(size);
        if (chunk == NULL && size <= need)
            return false;
        if (chunk != NULL) {
            size_t usable = slate_usable_size(chunk);
            chunk->size = within_limit(region, usable) ? usable : size;
        }
    }
    region->kept += chunk->size;
    region->chunks++;
    SLATE_TRACK_END_(data_of(chunk), chunk->size - sizeof *chunk);
    enter_chunk(region, chunk);
    return true;
}

/* Takes the first kept chunk that has room for `least` bytes. */
static bool take_later(struct region *region, size_t least)
{
    struct chunk *chunk = region->later;
    if (chunk == NULL || chunk->size - sizeof *chunk < least)
        return false;
    region->later = chunk->previous;
    enter_chunk(region, chunk);
    return true;
}

/* ---- blocks */

static void *alloc_own(struct region *region, size_t alignment, size_t size)
{
    struct own *own;
    size_t offset = (sizeof *own + alignment - 1) & ~(alignment - 1);
    size_t all = offset + rounded(size);
    if (!within_limit(region, all))
        return NULL;
    own = alignment <= 16 ? slate_alloc(all) : slate_aligned_alloc(alignment, all);
    if (own == NULL)
        return NULL;
    size_t usable = slate_usable_size(own);
    *own = (struct own){.previous = region->own,
                        .size = within_limit(region, usable) ? usable : all,
                        .serial = ++region->serial,
                        .offset = offset,
                        .carved = rounded(size)};
    region->own = own;
    region->owns++;
    region->kept += own->size;
    region->carved_before += own->carved;
    region->front.padding += own->carved - size;
    char *block = (char *)own + offset;
    SLATE_TRACK_END_(own + 1, own->size - sizeof *own);
    SLATE_TRACK_ALLOC_(block, size);
    return block;
}

/* In the current chunk; NULL when it has no room. */
static void *carve(struct region *region, size_t alignment, size_t size)
{
    uintptr_t bump = (uintptr_t)region->front.bump, limit = (uintptr_t)region->front.limit;
    uintptr_t start = (bump + alignment - 1) & ~(alignment - 1);
    if (bump == 0 || start > limit || rounded(size) > limit - start)
        return NULL;
    char *block = region->front.bump + (start - bump);
    region->front.bump = block + rounded(size);
    region->front.padding += (size_t)(start - bump) + rounded(size) - size;
    SLATE_TRACK_ALLOC_(block, size);
    return block;
}

void *slate_region_slow_(struct slate_region *public, size_t alignment, size_t size)
{
    struct region *region = whole(public);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > ALIGNMENT_MOST) {
        errno = EINVAL;
        return NULL;
    }
    if (alignment < SLATE_REGION_ALIGN)
        alignment = SLATE_REGION_ALIGN;
    if (size > PTRDIFF_MAX - 2 * ALIGNMENT_MOST)
        return out_of_memory();
    int saved = errno;
    void *block = carve(region, alignment, size);
    if (block == NULL) {
        size_t wished = next_chunk_size(region);
        size_t least = rounded(size) + alignment - SLATE_REGION_ALIGN;
        /* The first block may fill a chunk: nothing is lost at another's end. */
        size_t most = region->current != NULL ? wished / OWN_SHARE : wished - sizeof(struct chunk);
        if (least <= most) {
            if (take_later(region, least) || add_chunk(region, least, wished))
                block = carve(region, alignment, size);
        } else {
            block = alloc_own(region, alignment, size);
        }
    }
    if (block == NULL)
        return out_of_memory();
    errno = saved;
    return block;
}

/* The newest own block grows or shrinks, where it is or not. */
static void *resize_own(struct region *region, size_t old_size, size_t size)
{
    struct own *own = region->own;
    size_t all = own->offset + rounded(size);
    size_t kept = own->size;
    if (all > own->size && !within_limit(region, all - own->size))
        return NULL;
    SLATE_TRACK_OPEN_(own, own->size);
    struct own *moved = slate_realloc(own, all);
    if (moved == NULL)
        moved = own; /* as it was; it may be large enough */
    size_t usable = slate_usable_size(moved);
    region->own = moved;
    if (usable >= all) {
        moved->size = usable <= kept || within_limit(region, usable - kept) ? usable : all;
        region->kept += moved->size - kept;
        region->carved_before += rounded(size) - moved->carved;
        region->front.padding += (rounded(size) - size) - (moved->carved - old_size);
        moved->carved = rounded(size);
        old_size = size;
    }
    char *block = (char *)moved + moved->offset;
    SLATE_TRACK_END_(block + old_size, moved->size - moved->offset - old_size);
    return usable >= all ? block : NULL;
}

void *slate_region_realloc(struct slate_region *public, void *block, size_t old_size, size_t size)
{
    struct region *region = whole(public);
    char *start = block;
    if (block == NULL)
        return slate_region_alloc_inline_(public, size);
    if (size > PTRDIFF_MAX - 2 * ALIGNMENT_MOST)
        return out_of_memory();
    if (start + rounded(old_size) == public->bump &&
        rounded(size) <= (size_t)(public->limit - start)) {
        public->bump = start + rounded(size);
        public->padding += (rounded(size) - size) - (rounded(old_size) - old_size);
        if (size > old_size)
            SLATE_TRACK_ALLOC_(start + old_size, size - old_size);
        else
            SLATE_TRACK_END_(start + size, rounded(old_size) - size);
        return block;
    }
    int saved = errno;
    struct own *own = region->own;
    if (own != NULL && start == (char *)own + own->offset) {
        void *moved = resize_own(region, old_size, size);
        if (moved == NULL)
            return out_of_memory();
        errno = saved;
        return moved;
    }
    if (size <= old_size) {
        public->padding += old_size - size;
        SLATE_TRACK_END_(start + size, old_size - size);
        return block;
    }
    void *moved = slate_region_alloc_inline_(public, size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, old_size);
    public->padding += old_size;
    SLATE_TRACK_END_(start, rounded(old_size));
    return moved;
}

void *slate_region_memdup(struct slate_region *region, const void *data, size_t size)
{
    void *copy = slate_region_alloc_inline_(region, size);
    if (copy != NULL && size != 0)
        memcpy(copy, data, size);
    return copy;
}

char *slate_region_strdup(struct slate_region *region, const char *text)
{
    return slate_region_memdup(region, text, strlen(text) + 1);
}

char *slate_region_strndup(struct slate_region *region, const char *text, size_t most)
{
    const char *end = memchr(text, '\0', most);
    size_t length = end != NULL ? (size_t)(end - text) : most;
    if (length == SIZE_MAX)
        return out_of_memory();
    char *copy = slate_region_alloc_inline_(region, length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *slate_region_vprintf(struct slate_region *region, const char *format, va_list arguments)
{
    /* First into what is left of the chunk: most texts fit there and are made once. */
    size_t room = (size_t)(region->limit - region->bump);
    char *start = region->bump;
    va_list again;
    va_copy(again, arguments);
    int saved = errno;
    if (room != 0)
        SLATE_TRACK_ALLOC_(start, room);
    int length = vsnprintf(start, room, format, arguments);
    if (room != 0)
        SLATE_TRACK_END_(start, room);
    char *text = NULL;
    if (length >= 0 && (size_t)length < room) {
        text = start;
        region->bump += rounded((size_t)length + 1);
        region->padding += rounded((size_t)length + 1) - ((size_t)length + 1);
        SLATE_TRACK_ALLOC_(text, (size_t)length + 1);
        SLATE_TRACK_ZERO_(text, (size_t)length + 1);
        errno = saved;
    } else if (length >= 0) {
        text = slate_region_alloc_inline_(region, (size_t)length + 1);
        if (text != NULL)
            vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    return text;
}

char *slate_region_printf(struct slate_region *region, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = slate_region_vprintf(region, format, arguments);
    va_end(arguments);
    return text;
}

/* ---- the ends of blocks */

int slate_region_defer(struct slate_region *public, void (*call)(void *argument), void *argument)
{
    struct region *region = whole(public);
    int saved = errno;
    struct deferred *deferred = slate_region_alloc_inline_(public, sizeof *deferred);
    errno = saved;
    if (deferred == NULL)
        return ENOMEM;
    public->padding += sizeof *deferred;
    *deferred = (struct deferred){region->deferred, call, argument};
    region->deferred = deferred;
    return 0;
}

static void run_deferred(struct region *region, const struct deferred *until)
{
    while (region->deferred != until && region->deferred != NULL) {
        struct deferred *deferred = region->deferred;
        region->deferred = deferred->previous;
        deferred->call(deferred->argument);
    }
}

/* Ends the own blocks that are newer than number `serial`. */
static void free_owns(struct region *region, size_t serial)
{
    while (region->own != NULL && region->own->serial > serial) {
        struct own *own = region->own;
        region->own = own->previous;
        region->kept -= own->size;
        region->owns--;
        SLATE_TRACK_ALLOC_(own, own->size);
        slate_free(own);
    }
}

struct slate_region_mark slate_region_mark(struct slate_region *public)
{
    struct region *region = whole(public);
    return (struct slate_region_mark){.bump = public->bump,
                                      .chunk = region->current,
                                      .deferred = region->deferred,
                                      .own = region->serial,
                                      .padding = public->padding,
                                      .carved = carved(region),
                                      .depth = ++region->marks};
}

void slate_region_rewind(struct slate_region *public, struct slate_region_mark mark)
{
    struct region *region = whole(public);
    SLATEI_ASSERT(mark.depth != 0 && mark.depth <= region->marks);
    run_deferred(region, mark.deferred);
    free_owns(region, mark.own);
    while (region->current != mark.chunk) {
        struct chunk *chunk = region->current;
        region->current = chunk->previous;
        free_chunk(region, chunk);
    }
    char *limit = NULL;
    if (region->current != NULL) {
        limit = (char *)region->current + (region->current->size & ~(SLATE_REGION_ALIGN - 1));
        SLATE_TRACK_END_(mark.bump, (size_t)(limit - mark.bump));
        region->carved_before = mark.carved - (size_t)(mark.bump - data_of(region->current));
    } else {
        region->carved_before = mark.carved;
    }
    public->bump = mark.bump;
    public->limit = limit;
    public->padding = mark.padding;
    region->marks = mark.depth - 1;
}

/* Puts an empty chunk among those kept for later. */
static void keep_for_later(struct region *region, struct chunk *chunk)
{
    struct chunk **link = &region->later;
    while (*link != NULL && (*link)->size > chunk->size)
        link = &(*link)->previous;
    chunk->previous = *link;
    *link = chunk;
}

void slatei_region_trim(struct slate_region *public, size_t most)
{
    struct region *region = whole(public);
    size_t held = 0;
    for (struct chunk *chunk = region->current; chunk != NULL; chunk = chunk->previous)
        held += chunk->size;
    struct chunk **link = &region->later;
    while (*link != NULL) {
        struct chunk *chunk = *link;
        if (held <= most && chunk->size <= most - held) {
            held += chunk->size;
            link = &chunk->previous;
        } else {
            *link = chunk->previous;
            free_chunk(region, chunk);
        }
    }
}

void slate_region_reset(struct slate_region *public, size_t keep)
{
    struct region *region = whole(public);
    run_deferred(region, NULL);
    free_owns(region, 0);
    while (region->current != NULL) {
        struct chunk *chunk = region->current;
        region->current = chunk->previous;
        SLATE_TRACK_END_(data_of(chunk), chunk->size - sizeof *chunk);
        keep_for_later(region, chunk);
    }
    public->bump = public->limit = NULL;
    public->padding = region->carved_before = region->marks = 0;
    slatei_region_trim(public, keep);
}

void slate_region_destroy(struct slate_region *public)
{
    if (public == NULL)
        return;
    slate_region_reset(public, 0);
    slate_free(public);
}

/* ---- the region itself */

struct slate_region *slate_region_create(void)
{
    struct region *region = slate_zalloc(sizeof *region);
    if (region == NULL)
        return NULL;
    region->limit = SIZE_MAX;
    return &region->front;
}

void slate_region_limit(struct slate_region *region, size_t bytes) { whole(region)->limit = bytes; }

bool slatei_region_charge(struct slate_region *public, size_t less, size_t more)
{
    struct region *region = whole(public);
    if (more > less && !within_limit(region, more - less))
        return false;
    region->kept += more - less;
    region->charged += more - less;
    return true;
}

void slatei_region_first_chunk(struct slate_region *region, size_t bytes)
{
    whole(region)->chunk_least = bytes;
}

int slate_region_stats(const struct slate_region *public, struct slate_region_stats *stats,
                       size_t size)
{
    const struct region *region = (const struct region *)(const void *)public;
    if (size == 0)
        return EINVAL;
    struct slate_region_stats all = {.asked = carved(region) + region->charged - public->padding,
                                     .carved = carved(region) + region->charged,
                                     .kept = region->kept,
                                     .limit = region->limit,
                                     .chunks = region->chunks,
                                     .own = region->owns,
                                     .marks = region->marks};
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

/* ---- real symbols */

void *slate_region_alloc(struct slate_region *region, size_t size)
{
    return slate_region_alloc_inline_(region, size);
}

void *slate_region_zalloc(struct slate_region *region, size_t size)
{
    return slate_region_zalloc_inline_(region, size);
}

void *slate_region_aligned(struct slate_region *region, size_t alignment, size_t size)
{
    return slate_region_aligned_inline_(region, alignment, size);
}
