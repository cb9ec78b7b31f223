/* lib/buffer.h - what other parts of the library need to know of append buffers.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_BUFFER_H
#define SLATEI_BUFFER_H

#include <stdatomic.h>
#include <stddef.h>

/* From this capacity on (bytes) a block is a mapping of its own and is not copied any more. */
#define SLATEI_BUFFER_MAP_LEAST ((size_t)1 << 20)
/* Bytes behind an exact fit from there on. */
#define SLATEI_BUFFER_ROOM ((size_t)4096)

/* Bytes that growth has copied of contents of that size and more, in the whole process; for tests
 * and `slate bench append`.  Added to with relaxed order: nothing hangs on it. */
extern atomic_size_t slatei_buffer_copied;

/* The capacity that a block of `capacity` bytes gets when `needed` bytes are to fit. */
size_t slatei_buffer_grown(size_t capacity, size_t needed);

#endif
