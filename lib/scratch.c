/* lib/scratch.c - scratch: a region a thread, and what a thread gives back before it waits.
 *
 * SPDX-License-Identifier: MIT
 */
#include "scratch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "api.h"
#include "arena.h"
#include "large.h"
#include "pool.h"
#include "region.h"
#include "slice.h"
#include "tunables.h"

/* Of a thread that has used scratch since it was last idle; touched by that thread alone. */
struct scratch {
    struct slate_region *region;
    struct inner *inner; /* the innermost use but for the outermost one */
    size_t depth;        /* uses that have begun */
};

/* A nested use; lies in the region, behind its mark. */
struct inner {
    struct inner *outer;
    struct slate_region_mark mark;
};

#define ALIGNMENT 16
/* Chunks no smaller than this (bytes) are runs of the pool, which any thread can have next. */
#define CHUNK_LEAST ((size_t)32 << 10)
#define CHUNK_MOST ((size_t)1 << 20)
/* What a thread keeps is a chunk, its record and the region's (bytes). */
#define RECORDS ((size_t)4 << 10)
/* Free blocks on an arena's stacks that are worth putting back (bytes). */
#define HELD_LEAST ((size_t)16 << 10)
/* So many blocks have come back before the pages of the arena's units are looked through: that
 * takes as long as freeing some thousands of blocks. */
#define FLUSHED_LEAST 16384

static pthread_key_t key;
/* 0; 1 once the key is there.  Written by make_key alone, inside pthread_once. */
static bool key_made;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void end_scratch(void *value)
{
    struct scratch *scratch = value;
    slate_region_destroy(scratch->region);
    slate_free(scratch);
}

static void make_key(void) { key_made = pthread_key_create(&key, end_scratch) == 0; }

static struct scratch *own_scratch(void)
{
    pthread_once(&key_once, make_key);
    return key_made ? pthread_getspecific(key) : NULL;
}

static size_t chunk_size(void)
{
    size_t size = slatei_settings.scratch;
    size = size > RECORDS ? size - RECORDS : 0;
    return size < CHUNK_LEAST ? CHUNK_LEAST : size < CHUNK_MOST ? size : CHUNK_MOST;
}

static struct scratch *make_scratch(void)
{
    struct scratch *scratch = slate_zalloc(sizeof *scratch);
    if (scratch == NULL || !key_made)
        goto failed;
    scratch->region = slate_region_create();
    if (scratch->region == NULL || pthread_setspecific(key, scratch) != 0)
        goto failed;
    slatei_region_first_chunk(scratch->region, chunk_size());
    return scratch;
failed:
    if (scratch != NULL)
        end_scratch(scratch);
    return NULL;
}

int slate_scratch_begin(void)
{
    int saved = errno;
    struct scratch *scratch = own_scratch();
    if (scratch == NULL)
        scratch = make_scratch();
    if (scratch != NULL && scratch->depth != 0) {
        struct slate_region_mark mark = slate_region_mark(scratch->region);
        struct inner *inner = slate_region_new(scratch->region, struct inner);
        if (inner == NULL) {
            slate_region_rewind(scratch->region, mark);
            scratch = NULL;
        } else {
            *inner = (struct inner){scratch->inner, mark};
            scratch->inner = inner;
        }
    }
    errno = saved;
    if (scratch == NULL)
        return ENOMEM;
    scratch->depth++;
    return 0;
}

void *slate_scratch_alloc(size_t size)
{
    struct scratch *scratch = own_scratch();
    if (scratch == NULL || scratch->depth == 0) {
        errno = EINVAL;
        return NULL;
    }
    return slate_region_aligned_inline_(scratch->region, ALIGNMENT, size);
}

void slate_scratch_end(void)
{
    struct scratch *scratch = own_scratch();
    if (scratch == NULL || scratch->depth == 0)
        return;
    scratch->depth--;
    struct inner *inner = scratch->inner;
    if (inner != NULL) {
        struct slate_region_mark mark = inner->mark;
        scratch->inner = inner->outer;
        slate_region_rewind(scratch->region, mark);
    } else {
        size_t most = slatei_settings.scratch;
        slate_region_reset(scratch->region, most > RECORDS ? most - RECORDS : 0);
    }
}

void *slate_scratch_copy(size_t room,
                         ptrdiff_t (*produce)(void *argument, void *buffer, size_t room),
                         void *argument, size_t *size)
{
    void *block = NULL;
    if (slate_scratch_begin() != 0) {
        errno = ENOMEM;
        return NULL;
    }
    void *buffer = slate_scratch_alloc(room);
    ptrdiff_t made = buffer != NULL ? produce(argument, buffer, room) : -1;
    if (made >= 0) {
        block = slate_alloc((size_t)made);
        if (block != NULL && made != 0)
            __builtin_memcpy(block, buffer, (size_t)made);
        *size = (size_t)made;
    }
    slate_scratch_end();
    return block;
}

/* ---- idle */

size_t slate_thread_idle(void)
{
    if (!slatei_started())
        return 0;
    struct scratch *scratch = own_scratch();
    if (scratch != NULL && scratch->depth == 0) {
        pthread_setspecific(key, NULL);
        end_scratch(scratch);
    } else if (scratch != NULL) {
        slatei_region_trim(scratch->region, 0);
    }
    size_t bytes = 0;
    if (slatei_arena_owned()) {
        struct slatei_arena *arena = (struct slatei_arena *)(void *)slate_self_;
        if (arena->flushed - arena->idle_flushed >= FLUSHED_LEAST) {
            bytes = slatei_slice_purge_own(arena);
            arena->idle_flushed = arena->flushed;
        } else if (arena->spare_granules != 0 || slatei_slice_held(arena) >= HELD_LEAST) {
            slatei_slice_flush_all(arena);
        } else {
            slatei_slice_drain(arena);
        }
    } else {
        slatei_arena_guard_forks();
    }
    size_t pool = slatei_pool_idle(), spare = slatei_large_spare_own();
    if (pool + spare > SLATEI_IDLE_KEEP)
        bytes += slatei_large_purge();
    if (pool > SLATEI_IDLE_KEEP)
        bytes += slatei_pool_purge();
    return bytes;
}

size_t slatei_scratch_held(void)
{
    struct scratch *scratch = own_scratch();
    struct slate_region_stats stats;
    if (scratch == NULL)
        return 0;
    slate_region_stats(scratch->region, &stats, sizeof stats);
    return stats.kept + slate_usable_size(scratch) + slate_usable_size(scratch->region);
}
