/* replay_call.c - replays on slate through its real symbols: a call for each operation, as a malloc
 * has it.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_NO_INLINE 1
#include <slate.h>

#define REPLAY_NAME replay_call
#define REPLAY_FLOOR 0
#define ALLOCATE(size) slate_alloc(size)
#define ALLOCATE_ZERO(size) slate_zalloc(size)
#define ALLOCATE_ALIGNED(log2, size) slate_aligned_alloc((size_t)1 << (log2), size)
#define REALLOCATE(block, size) slate_realloc(block, size)
#define FREE(block) slate_free(block)

#include "replay_loop.h"
