/* replay_slate.c - replays on slate's inline interface.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_STATIC 1
#include <slate.h>

#define REPLAY_NAME replay_slate
#define REPLAY_FLOOR 0
#define ALLOCATE(size) slate_alloc(size)
#define ALLOCATE_ZERO(size) slate_zalloc(size)
#define ALLOCATE_ALIGNED(log2, size) slate_aligned_alloc((size_t)1 << (log2), size)
#define REALLOCATE(block, size) slate_realloc(block, size)
#define FREE(block) slate_free(block)

#include "replay_loop.h"
