/* replay_talloc.c - replays in talloc's tree: each object is a child of its phase's context.
 *
 * SPDX-License-Identifier: MIT
 */
#include <talloc.h>

#define REPLAY_NAME replay_talloc
#define REGION_ALLOCATE(size) talloc_size(thread->region, size)
#define ALLOCATE_ZERO(size) talloc_zero_size(thread->region, size)
#define REALLOCATE_FROM(block, old_size, size)                                                     \
    talloc_realloc_size(thread->region, block, (size) ? (size) : 1)
#define PHASE_BEGIN(thread) ((thread)->region = talloc_new(NULL))
#define PHASE_END(thread) talloc_free_children((thread)->region)
#define PHASES_OVER(thread) talloc_free((thread)->region)

#include "replay_other_region.h"

#include "replay_loop.h"
