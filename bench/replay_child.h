/* replay_child.h - what the replaying loops and the child process around them share.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REPLAY_CHILD_H
#define SLATE_REPLAY_CHILD_H

#include "replay_words.h"

#include <stddef.h>

/* The floor's rotating buffer, and the part of a block that is written in one piece. */
#define FLOOR_BUFFER_BYTES ((size_t)256 << 10)
#define FLOOR_BLOCK_BYTES ((size_t)64 << 10)

struct replay_process;

/* One trace thread.  Aligned so that no two share a cache line. */
struct replay_thread {
    _Alignas(128) const uint64_t *words; /* the whole decoded trace */
    const uint64_t *first;               /* where this thread's stream begins */
    void **slots;
    bool check_all;
    uint64_t sink; /* floor: keeps the loads */
    unsigned char
        *buffer;      /* floor: this thread's rotating buffer, with room for a block behind it */
    size_t buffer_at; /* floor: where the next block goes */
    struct replay_process *process;
    void *region; /* what the phase's objects are in */
};

void replay_malloc(struct replay_thread *thread);
void replay_slate(struct replay_thread *thread);
void replay_call(struct replay_thread *thread);
void replay_floor(struct replay_thread *thread);
/* In the memory of phases: slate's regions, others. */
void replay_region(struct replay_thread *thread);
void replay_apr(struct replay_thread *thread);
void replay_obstack(struct replay_thread *thread);
void replay_slab(struct replay_thread *thread);
void replay_talloc(struct replay_thread *thread);

/* Starts trace thread `index`, as soon as those have ended that ended before it in the trace. */
void replay_start_thread(struct replay_thread *starter, uint32_t index);

/* Lets others run while another thread's object does not exist yet. */
void replay_wait(void);

/* Ends the process with `status` for the operation at `at`. */
_Noreturn void replay_fail(struct replay_thread *thread, int status, const uint64_t *at,
                           const void *block, size_t size);

#endif
