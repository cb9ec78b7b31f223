/* replay_region.c - replays in slate's regions: a phase's objects end with a reset.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_STATIC 1
#include <slate.h>

#define REPLAY_NAME replay_region
#define REPLAY_FLOOR 0
#define REGION ((struct slate_region *)thread->region)
#define ALLOCATE(size) slate_region_alloc(REGION, size)
#define ALLOCATE_ZERO(size) slate_region_zalloc(REGION, size)
#define ALLOCATE_ALIGNED(log2, size) slate_region_aligned(REGION, (size_t)1 << (log2), size)
#define REALLOCATE_FROM(block, old_size, size) slate_region_realloc(REGION, block, old_size, size)
#define FREE(block) ((void)(block))
#define PHASE_BEGIN(thread) ((thread)->region = slate_region_create())
#define PHASE_END(thread) slate_region_reset(REGION, 0)
#define PHASES_OVER(thread) slate_region_destroy(REGION)

#include "replay_loop.h"
