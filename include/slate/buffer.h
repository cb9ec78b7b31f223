/* slate/buffer.h - append buffers: bytes that grow at the end and are read from the front.
 *
 * SPDX-License-Identifier: MIT
 *
 * Include <slate.h>, not this file.  All sizes are in bytes.
 *
 * Below 1 MiB a buffer doubles.  From 1 MiB on it never copies what it holds: its block grows where
 * it is or its page tables move; and a block that fits its contents exactly, or to within 4,096
 * bytes, gets 4,096 bytes more, so that a short append behind a large one costs nothing.
 *
 * A buffer may be used by one thread at a time.  Addresses inside it hold until the next call that
 * appends, reserves, consumes, finishes or frees.  No function sets errno; those that return int
 * return 0, or ENOMEM and then the buffer is as it was.  What is appended must not lie in the
 * buffer itself.
 */
#ifndef SLATE_BUFFER_H
#define SLATE_BUFFER_H

#include <stdarg.h>
#include <stdint.h>

/* Only the library looks inside.
 *   block <= read <= write <= limit, or all of them NULL
 *   [read, write) is what the buffer holds */
struct slate_buffer {
    char *write;
    char *limit;
    char *read;
    char *block;
    struct slate_region *region; /* NULL: on the heap */
    void *mapping;               /* in a region: what ends the block with it */
    size_t mapped;               /* bytes of a block that is a mapping of its own, else 0 */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Makes `buffer` an empty one; it takes no memory before the first append.  In `region`, blocks are
 * the region's: they end with it, or when it is rewound to a mark older than the growth.  With
 * `region` NULL they are on the heap and end with slate_buffer_free or slate_buffer_finish. */
SLATE_API void slate_buffer_init(struct slate_buffer *buffer, struct slate_region *region);

/* Ends what the buffer holds and gives back its block; it is empty then, as from slate_buffer_init.
 */
SLATE_API void slate_buffer_free(struct slate_buffer *buffer);

/* Appends the `size` bytes at `data`.  Returns 0 or ENOMEM. */
SLATE_API int slate_buffer_append(struct slate_buffer *buffer, const void *data, size_t size);

/* Appends one byte.  Returns 0 or ENOMEM. */
SLATE_API int slate_buffer_append_byte(struct slate_buffer *buffer, unsigned char byte);

/* Appends the text that `format` and the arguments make, as printf has it, without a zero byte.
 * Returns 0; or ENOMEM, or EINVAL for a format that vsnprintf refuses. */
SLATE_API int slate_buffer_printf(struct slate_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
SLATE_API int slate_buffer_vprintf(struct slate_buffer *buffer, const char *format,
                                   va_list arguments) __attribute__((format(printf, 2, 0)));

/* Appends `size` characters of Latin-1 (ISO 8859-1) as UTF-8: one byte each up to 0x7f, two above.
 * The output is sized first, so the buffer grows at most once.  Returns 0 or ENOMEM. */
SLATE_API int slate_buffer_append_latin1(struct slate_buffer *buffer, const void *text,
                                         size_t size);

/* Appends `count` units of UTF-16, in the machine's byte order, as UTF-8: up to three bytes for a
 * unit, four for a pair of surrogates.  A surrogate without its other half becomes U+FFFD, three
 * bytes.  Sized first too.  Returns 0 or ENOMEM. */
SLATE_API int slate_buffer_append_utf16(struct slate_buffer *buffer, const uint16_t *units,
                                        size_t count);

/* Makes room for `size` more bytes, which can then be appended without a failure.  Returns 0 or
 * ENOMEM. */
SLATE_API int slate_buffer_reserve(struct slate_buffer *buffer, size_t size);

/* Leaves of what the buffer holds the first `length` bytes; does nothing when it holds no more.
 * Keeps the block. */
SLATE_API void slate_buffer_truncate(struct slate_buffer *buffer, size_t length);

/* Takes the first `size` bytes, or all there are, from the front: they have ended.  Whole pages of
 * them go back to the system, 64 KiB or more at a time.  A buffer that is empty then gives up a
 * block of more than SLATE_SCRATCH bytes and uses a smaller one again from its start. */
SLATE_API void slate_buffer_consume(struct slate_buffer *buffer, size_t size);

/* Hands over what the buffer holds: shrinks its block to fit, stores the number of bytes in `size`
 * (if not NULL) and leaves the buffer empty.  Returns the block, which is slate_free's on the heap
 * and the region's in a region; or NULL with errno ENOMEM when an empty buffer gets no block.
 * What was consumed before makes it move the rest to the front of the block. */
SLATE_API void *slate_buffer_finish(struct slate_buffer *buffer, size_t *size)
    __attribute__((warn_unused_result));

/* What the buffer holds: where (NULL is possible when it is empty), and how many bytes. */
SLATE_API char *slate_buffer_data(const struct slate_buffer *buffer);
SLATE_API size_t slate_buffer_length(const struct slate_buffer *buffer);

/* For the inlines below: what they have no room for. */
SLATE_API int slate_buffer_append_slow_(struct slate_buffer *buffer, const void *data, size_t size);

SLATE_TWIN_ int slate_buffer_append_inline_(struct slate_buffer *buffer, const void *data,
                                            size_t size)
{
    char *write = buffer->write;
    /* A size of 0 wraps around, and is the slow path's. */
    if (SLATE_UNLIKELY_(size - 1 >= (uintptr_t)buffer->limit - (uintptr_t)write))
        return slate_buffer_append_slow_(buffer, data, size);
    SLATE_TRACK_ALLOC_(write, size);
    __builtin_memcpy(write, data, size);
    buffer->write = write + size;
    return 0;
}

SLATE_TWIN_ int slate_buffer_append_byte_inline_(struct slate_buffer *buffer, unsigned char byte)
{
    char *write = buffer->write;
    if (SLATE_UNLIKELY_(write == buffer->limit))
        return slate_buffer_append_slow_(buffer, &byte, 1);
    SLATE_TRACK_ALLOC_(write, 1);
    *(unsigned char *)write = byte;
    buffer->write = write + 1;
    return 0;
}

#ifndef SLATE_NO_INLINE
SLATE_INLINE_ int slate_buffer_append(struct slate_buffer *buffer, const void *data, size_t size)
{
    return slate_buffer_append_inline_(buffer, data, size);
}

SLATE_INLINE_ int slate_buffer_append_byte(struct slate_buffer *buffer, unsigned char byte)
{
    return slate_buffer_append_byte_inline_(buffer, byte);
}

SLATE_INLINE_ char *slate_buffer_data(const struct slate_buffer *buffer) { return buffer->read; }

SLATE_INLINE_ size_t slate_buffer_length(const struct slate_buffer *buffer)
{
    return (size_t)(buffer->write - buffer->read);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
