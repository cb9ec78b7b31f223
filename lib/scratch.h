/* lib/scratch.h - what tests and benches need to know of scratch.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_SCRATCH_H
#define SLATEI_SCRATCH_H

#include <stddef.h>

/* Bytes in memory that no block is in, in the whole process, up to which slate_thread_idle leaves
 * them to other threads.  A thread that wakes up finds its scratch there and not in the kernel: 1
 * MiB on small pages is 256 faults, twice the time of a round of work. */
#define SLATEI_IDLE_KEEP ((size_t)4 << 20)

/* Bytes that the calling thread has of the heap for its scratch. */
size_t slatei_scratch_held(void);

#endif
