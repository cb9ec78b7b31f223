/* replay_floor.c - replays with no allocator: the same reads and writes on a small rotating buffer.
 *
 * SPDX-License-Identifier: MIT
 */
#include "replay_child.h"

#define REPLAY_NAME replay_floor
#define REPLAY_FLOOR 1
#define ALLOCATE(size) next_place(thread, size)
#define ALLOCATE_ZERO(size) next_place(thread, size)
#define ALLOCATE_ALIGNED(log2, size) next_place(thread, size)
#define REALLOCATE(block, size) next_place(thread, size)
#define FREE(block) ((void)(block))

static inline void *next_place(struct replay_thread *thread, size_t size)
{
    unsigned char *place = thread->buffer + thread->buffer_at;
    size_t step = size < FLOOR_BLOCK_BYTES ? (size + 15) & ~(size_t)15 : FLOOR_BLOCK_BYTES;
    thread->buffer_at = (thread->buffer_at + step) & (FLOOR_BUFFER_BYTES - 1);
    return place;
}

#include "replay_loop.h"
