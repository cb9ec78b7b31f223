/* slate/scratch.h - scratch: a thread's short-lived working memory, not kept while it is idle.
 *
 * SPDX-License-Identifier: MIT
 *
 * Include <slate.h>, not this file.  All sizes are in bytes.
 *
 *     slate_scratch_begin();
 *     char *text = slate_scratch_alloc(size);
 *     ...
 *     slate_scratch_end();                  text has ended
 *     slate_thread_idle();                  before the thread waits: it holds next to nothing now
 */
#ifndef SLATE_SCRATCH_H
#define SLATE_SCRATCH_H

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a use of the calling thread's scratch.  Uses nest; each ends with slate_scratch_end on the
 * same thread.  Returns 0; or ENOMEM, and then nothing has begun.  Does not set errno. */
SLATE_API int slate_scratch_begin(void) __attribute__((warn_unused_result));

/* Allocates `size` bytes, aligned to 16, not set, that live until the innermost use ends.  Returns
 * them; or NULL with errno ENOMEM, or EINVAL when the thread has begun no use. */
SLATE_API void *slate_scratch_alloc(size_t size)
    __attribute__((malloc, alloc_size(1), assume_aligned(16), warn_unused_result));

/* Ends the innermost use and all that was allocated since it began.  With the outermost one the
 * thread keeps at most SLATE_SCRATCH bytes (64 KiB, slate --help-tunables); the rest goes back.
 * Does nothing when no use has begun. */
SLATE_API void slate_scratch_end(void);

/* Lets `produce` write into scratch of `room` bytes and returns a block with what it wrote, no
 * larger than that: so a buffer that must be large before something is read need not stay large.
 * `produce(argument, buffer, room)` returns as read(2) does: how many bytes it wrote, at most
 * `room`, or a negative number.  `size` receives the number.  Returns the block, to be ended by
 * slate_free; or NULL: with errno ENOMEM when there is no memory, with errno as `produce` left it
 * when that returned a negative number. */
SLATE_API void *slate_scratch_copy(size_t room,
                                   ptrdiff_t (*produce)(void *argument, void *buffer, size_t room),
                                   void *argument, size_t *size)
    __attribute__((malloc, nonnull(2, 4), warn_unused_result));

/* Tells that the calling thread is about to wait: gives back its scratch (what is in use stays),
 * the free blocks and runs that its arena holds for the next call, and, when they come to more than
 * some MiB, the pages that no block is in.  Cheap: with nothing to give back it makes no system
 * call, and what it gives back serves other threads before it goes to the system.  Returns the
 * bytes that went back to the system; never fails. */
SLATE_API size_t slate_thread_idle(void);

#ifdef __cplusplus
}
#endif

#endif
