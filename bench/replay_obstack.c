/* replay_obstack.c - replays in the C library's obstacks.
 *
 * SPDX-License-Identifier: MIT
 */
#include <obstack.h>
#include <stdlib.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

#define REPLAY_NAME replay_obstack
#define REGION_ALLOCATE(size) allocate(thread->region, size)
#define PHASE_BEGIN(thread) ((thread)->region = make_stack())
#define PHASE_END(thread) end_objects((thread)->region)
#define PHASES_OVER(thread) obstack_free((struct obstack *)(thread)->region, NULL)

static void *first_object;

static void *make_stack(void)
{
    static struct obstack stack;
    obstack_init(&stack);
    obstack_alignment_mask(&stack) = 7; /* as the others; by itself it would be 15 */
    first_object = obstack_alloc(&stack, 0);
    return &stack;
}

static void end_objects(struct obstack *stack)
{
    obstack_free(stack, first_object);
    first_object = obstack_alloc(stack, 0);
}

/* Sizes are int there. */
static inline void *allocate(struct obstack *stack, size_t size)
{
    return size <= 0x7fffff00 ? obstack_alloc(stack, (int)size) : NULL;
}

#include "replay_other_region.h"

#include "replay_loop.h"
