/* replay_slab.c - replays in slabs as LLVM's BumpPtrAllocator has them, by its documentation in
 * llvm/Support/Allocator.h: slabs of 4,096 bytes whose size doubles after every 128; what does not
 * fit in 4,096 bytes is allocated by itself; a reset keeps the first slab.
 *
 * SPDX-License-Identifier: MIT
 */
#include <stdint.h>
#include <stdlib.h>

#define REPLAY_NAME replay_slab
#define REGION_ALLOCATE(size) allocate(thread->region, size)
#define PHASE_BEGIN(thread) ((thread)->region = &slabs_of_process)
#define PHASE_END(thread) reset((thread)->region, 1)
#define PHASES_OVER(thread) reset((thread)->region, 0)

enum { SLAB_BYTES = 4096, GROWTH_DELAY = 128, LARGEST_SHIFT = 30 };

struct pointers {
    void **items;
    size_t count, room;
};

struct slabs {
    char *at, *end;
    struct pointers slab, own;
};

static struct slabs slabs_of_process;

static void *keep(struct pointers *pointers, void *block)
{
    if (pointers->count == pointers->room) {
        size_t room = pointers->room ? pointers->room * 2 : 16;
        void **items = realloc(pointers->items, room * sizeof *items);
        if (!items) {
            free(block);
            return NULL;
        }
        pointers->items = items;
        pointers->room = room;
    }
    if (block)
        pointers->items[pointers->count++] = block;
    return block;
}

static __attribute__((noinline)) void *allocate_slow(struct slabs *slabs, size_t size)
{
    if (size > SLAB_BYTES)
        return keep(&slabs->own, malloc(size));
    size_t shift = slabs->slab.count / GROWTH_DELAY;
    size_t bytes = (size_t)SLAB_BYTES << (shift < LARGEST_SHIFT ? shift : LARGEST_SHIFT);
    char *slab = keep(&slabs->slab, malloc(bytes));
    if (!slab)
        return NULL;
    slabs->at = slab + size;
    slabs->end = slab + bytes;
    return slab;
}

static inline void *allocate(struct slabs *slabs, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (__builtin_expect(size <= (size_t)(slabs->end - slabs->at) && slabs->at, 1)) {
        char *block = slabs->at;
        slabs->at += size;
        return block;
    }
    return allocate_slow(slabs, size);
}

static void reset(struct slabs *slabs, size_t kept)
{
    while (slabs->own.count)
        free(slabs->own.items[--slabs->own.count]);
    while (slabs->slab.count > kept)
        free(slabs->slab.items[--slabs->slab.count]);
    slabs->at = slabs->slab.count ? slabs->slab.items[0] : NULL;
    slabs->end = slabs->at ? slabs->at + SLAB_BYTES : NULL;
    if (kept)
        return;
    free(slabs->slab.items);
    free(slabs->own.items);
    *slabs = (struct slabs){0};
}

#include "replay_other_region.h"

#include "replay_loop.h"
