/* lib/buffer.c - append buffers: growth without copies, conversions, the read cursor.
 *
 * SPDX-License-Identifier: MIT
 */
#include "buffer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "assert.h"
#include "large.h"
#include "os.h"
#include "region.h"
#include "reserve.h"
#include "tunables.h"

#define FIRST ((size_t)64) /* bytes of the first block */
#define MAP_LEAST SLATEI_BUFFER_MAP_LEAST
#define ROOM SLATEI_BUFFER_ROOM
/* Consumed pages go back so many bytes at a time: a system call for each page would cost more than
 * the page. */
#define GIVE_BACK ((size_t)64 << 10)
#define SIZE_MOST ((size_t)PTRDIFF_MAX / 4)

/* The mapping of a buffer in a region; lies in the region, which ends it by a deferred call. */
struct mapping {
    struct slate_region *region;
    void *block;  /* NULL: ended already */
    size_t bytes; /* counted against the region's limit */
};

atomic_size_t slatei_buffer_copied;

static void count_copied(size_t length)
{
    if (length >= MAP_LEAST)
        atomic_fetch_add_explicit(&slatei_buffer_copied, length, memory_order_relaxed);
}

static inline size_t capacity_of(const struct slate_buffer *buffer)
{
    return (size_t)(buffer->limit - buffer->block);
}

static inline size_t length_of(const struct slate_buffer *buffer)
{
    return (size_t)(buffer->write - buffer->read);
}

/* Beyond `write` nothing may be touched. */
static void close_rest(const struct slate_buffer *buffer)
{
    if (buffer->limit != buffer->write)
        SLATE_TRACK_END_(buffer->write, (size_t)(buffer->limit - buffer->write));
}

static void set_block(struct slate_buffer *buffer, char *block, size_t read, size_t length,
                      size_t capacity)
{
    buffer->block = block;
    buffer->read = block + read;
    buffer->write = buffer->read + length;
    buffer->limit = block + capacity;
    close_rest(buffer);
}

static void set_empty(struct slate_buffer *buffer)
{
    buffer->block = buffer->read = buffer->write = buffer->limit = NULL;
    buffer->mapped = 0;
}

void slate_buffer_init(struct slate_buffer *buffer, struct slate_region *region)
{
    set_empty(buffer);
    buffer->region = region;
    buffer->mapping = NULL;
}

/* ---- blocks that are mappings */

static void end_mapping(void *argument)
{
    struct mapping *mapping = argument;
    if (mapping->block != NULL)
        slate_free(mapping->block);
    mapping->block = NULL;
    slatei_region_charge(mapping->region, mapping->bytes, 0);
    mapping->bytes = 0;
}

/* Sees to it that the region ends the mapping that the buffer is about to have. */
static bool prepare_mapping(struct slate_buffer *buffer)
{
    struct mapping *mapping = slate_region_new(buffer->region, struct mapping);
    if (mapping == NULL)
        return false;
    *mapping = (struct mapping){.region = buffer->region};
    if (slate_region_defer(buffer->region, end_mapping, mapping) != 0)
        return false;
    buffer->mapping = mapping;
    return true;
}

static void note_mapping(struct slate_buffer *buffer)
{
    if (buffer->region != NULL)
        ((struct mapping *)buffer->mapping)->block = buffer->block;
}

/* Counts the mapping's bytes against the region's limit. */
static bool charge(struct slate_buffer *buffer, size_t bytes)
{
    if (buffer->region != NULL) {
        struct mapping *mapping = buffer->mapping;
        if (!slatei_region_charge(buffer->region, mapping->bytes, bytes))
            return false;
        mapping->bytes = bytes;
    }
    buffer->mapped = bytes;
    return true;
}

/* The block becomes a mapping of that capacity, or the mapping gets it. */
static bool map(struct slate_buffer *buffer, size_t capacity)
{
    size_t page = slatei_os_page_size();
    capacity = slatei_round_up(capacity, page);
    size_t length = length_of(buffer), old = buffer->mapped;
    if (buffer->region != NULL && old == 0 && !prepare_mapping(buffer))
        return false;
    if (!charge(buffer, capacity))
        return false;
    if (old != 0) {
        size_t read = (size_t)(buffer->read - buffer->block);
        SLATE_TRACK_OPEN_(buffer->block, old);
        size_t copied;
        char *moved = slatei_large_resize_own(buffer->block, capacity, &copied);
        if (moved == NULL) {
            charge(buffer, old);
            close_rest(buffer);
            return false;
        }
        count_copied(copied);
        set_block(buffer, moved, read, length, capacity);
    } else {
        char *made = slatei_large_alloc_own(capacity);
        if (made == NULL) {
            charge(buffer, 0);
            return false;
        }
        SLATE_TRACK_OPEN_(made, capacity);
        if (length != 0)
            memcpy(made, buffer->read, length);
        count_copied(length);
        if (buffer->region == NULL)
            slate_free(buffer->block);
        /* What was kept may be larger. */
        size_t usable = slatei_large_usable(made);
        if (usable > capacity && charge(buffer, usable))
            capacity = usable;
        set_block(buffer, made, 0, length, capacity);
    }
    note_mapping(buffer);
    return true;
}

static void unmap(struct slate_buffer *buffer)
{
    SLATE_TRACK_OPEN_(buffer->block, buffer->mapped);
    if (buffer->region != NULL) {
        end_mapping(buffer->mapping);
    } else {
        slate_free(buffer->block);
    }
    set_empty(buffer);
}

/* ---- other blocks */

static bool move(struct slate_buffer *buffer, size_t capacity)
{
    size_t length = length_of(buffer), old = capacity_of(buffer);
    char *moved;
    if (old != 0)
        SLATE_TRACK_OPEN_(buffer->block, old);
    if (buffer->read != buffer->block) {
        moved = buffer->region != NULL ? slate_region_alloc(buffer->region, capacity)
                                       : slate_alloc(capacity);
        if (moved != NULL) {
            memcpy(moved, buffer->read, length);
            if (buffer->region == NULL)
                slate_free(buffer->block);
        }
    } else {
        moved = buffer->region != NULL
                    ? slate_region_realloc(buffer->region, buffer->block, old, capacity)
                    : slate_realloc(buffer->block, capacity);
    }
    if (moved == NULL) {
        close_rest(buffer);
        return false;
    }
    if (moved != buffer->block)
        count_copied(length);
    set_block(buffer, moved, 0, length, capacity);
    return true;
}

static bool change_capacity(struct slate_buffer *buffer, size_t capacity)
{
    int saved = errno;
    bool done = false;
    if ((capacity >= MAP_LEAST && slatei_start()) || buffer->mapped != 0)
        done = map(buffer, capacity);
    /* Where there can be no mapping, at least a block. */
    if (!done && buffer->mapped == 0)
        done = move(buffer, capacity);
    errno = saved;
    return done;
}

/* ---- room */

size_t slatei_buffer_grown(size_t capacity, size_t needed)
{
    size_t grown = capacity < FIRST ? FIRST : capacity;
    if (needed < MAP_LEAST) {
        while (grown < needed)
            grown *= 2;
    } else {
        grown = capacity > SIZE_MOST ? needed : capacity * 2;
    }
    /* A doubling can be an exact fit as well. */
    if ((grown >= MAP_LEAST || needed >= MAP_LEAST) && needed + ROOM > grown)
        grown = needed + ROOM;
    return grown;
}

static int make_room(struct slate_buffer *buffer, size_t size)
{
    size_t length = length_of(buffer), consumed = (size_t)(buffer->read - buffer->block);
    size_t capacity = capacity_of(buffer);
    if (size <= (size_t)(buffer->limit - buffer->write))
        return 0;
    if (size > SIZE_MOST)
        return ENOMEM;
    if (buffer->mapped == 0 && consumed >= capacity / 2 && length + size <= capacity) {
        /* What is moved is no more than what was consumed since the last time. */
        SLATE_TRACK_OPEN_(buffer->block, capacity);
        memmove(buffer->block, buffer->read, length);
        set_block(buffer, buffer->block, 0, length, capacity);
        return 0;
    }
    /* A mapping keeps what was consumed of its first page; other blocks leave it behind. */
    size_t needed = length + size + (buffer->mapped != 0 ? consumed : 0);
    size_t grown = slatei_buffer_grown(capacity, needed);
    if (change_capacity(buffer, grown))
        return 0;
    return grown > needed && change_capacity(buffer, needed) ? 0 : ENOMEM;
}

int slate_buffer_reserve(struct slate_buffer *buffer, size_t size)
{
    return make_room(buffer, size);
}

int slate_buffer_append_slow_(struct slate_buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return 0;
    int error = make_room(buffer, size);
    if (error != 0)
        return error;
    SLATE_TRACK_ALLOC_(buffer->write, size);
    memcpy(buffer->write, data, size);
    buffer->write += size;
    return 0;
}

int slate_buffer_vprintf(struct slate_buffer *buffer, const char *format, va_list arguments)
{
    size_t room = (size_t)(buffer->limit - buffer->write);
    va_list again;
    va_copy(again, arguments);
    int saved = errno, error = 0;
    if (room != 0)
        SLATE_TRACK_ALLOC_(buffer->write, room);
    int length = vsnprintf(buffer->write, room, format, arguments);
    if (length < 0) {
        error = EINVAL;
    } else if ((size_t)length >= room) {
        close_rest(buffer);
        error = make_room(buffer, (size_t)length + 1);
        if (error == 0) {
            SLATE_TRACK_ALLOC_(buffer->write, (size_t)length + 1);
            vsnprintf(buffer->write, (size_t)length + 1, format, again);
        }
    }
    va_end(again);
    if (error == 0)
        buffer->write += length;
    close_rest(buffer);
    errno = saved;
    return error;
}

int slate_buffer_printf(struct slate_buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int error = slate_buffer_vprintf(buffer, format, arguments);
    va_end(arguments);
    return error;
}

/* ---- conversions: the output is sized before it is made */

#define EIGHT_HIGH UINT64_C(0x8080808080808080)

static inline uint64_t load_eight(const void *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static size_t count_high(const unsigned char *text, size_t size)
{
    size_t count = 0, i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t high = load_eight(text + i) & EIGHT_HIGH;
        count += (size_t)((high >> 7) * UINT64_C(0x0101010101010101) >> 56);
    }
    for (; i < size; i++)
        count += text[i] >> 7;
    return count;
}

int slate_buffer_append_latin1(struct slate_buffer *buffer, const void *text, size_t size)
{
    const unsigned char *from = text;
    if (size > SIZE_MOST / 2)
        return ENOMEM;
    size_t bytes = size + count_high(from, size);
    int error = make_room(buffer, bytes);
    if (error != 0 || size == 0)
        return error;
    if (bytes == size)
        return slate_buffer_append_inline_(buffer, from, size);
    SLATE_TRACK_ALLOC_(buffer->write, bytes);
    unsigned char *to = (unsigned char *)buffer->write;
    for (size_t i = 0; i < size;) {
        if (i + 8 <= size && (load_eight(from + i) & EIGHT_HIGH) == 0) {
            memcpy(to, from + i, 8);
            to += 8;
            i += 8;
        } else if (from[i] < 0x80) {
            *to++ = from[i++];
        } else {
            *to++ = (unsigned char)(0xc0 | from[i] >> 6);
            *to++ = (unsigned char)(0x80 | (from[i++] & 0x3f));
        }
    }
    buffer->write += bytes;
    return 0;
}

static inline bool is_pair(const uint16_t *units, size_t i, size_t count)
{
    return (units[i] & 0xfc00) == 0xd800 && i + 1 < count && (units[i + 1] & 0xfc00) == 0xdc00;
}

static size_t size_utf16(const uint16_t *units, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t unit = units[i];
        bytes += (size_t)1 + (unit >= 0x80) + (unit >= 0x800);
        if (is_pair(units, i, count)) { /* three bytes are counted, and one more is to come */
            bytes++;
            i++;
        }
    }
    return bytes;
}

int slate_buffer_append_utf16(struct slate_buffer *buffer, const uint16_t *units, size_t count)
{
    if (count > SIZE_MOST / 3)
        return ENOMEM;
    size_t bytes = size_utf16(units, count);
    int error = make_room(buffer, bytes);
    if (error != 0 || count == 0)
        return error;
    SLATE_TRACK_ALLOC_(buffer->write, bytes);
    unsigned char *to = (unsigned char *)buffer->write;
    for (size_t i = 0; i < count; i++) {
        uint32_t code = units[i];
        if (code < 0x80) {
            *to++ = (unsigned char)code;
            continue;
        }
        if (code < 0x800) {
            *to++ = (unsigned char)(0xc0 | code >> 6);
            *to++ = (unsigned char)(0x80 | (code & 0x3f));
            continue;
        }
        if (is_pair(units, i, count)) {
            code = 0x10000 + ((code & 0x3ff) << 10) + (units[++i] & 0x3ffu);
            *to++ = (unsigned char)(0xf0 | code >> 18);
            *to++ = (unsigned char)(0x80 | (code >> 12 & 0x3f));
        } else {
            if ((code & 0xf800) == 0xd800)
                code = 0xfffd;
            *to++ = (unsigned char)(0xe0 | code >> 12);
        }
        *to++ = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (unsigned char)(0x80 | (code & 0x3f));
    }
    SLATEI_ASSERT((char *)to == buffer->write + bytes);
    buffer->write += bytes;
    return 0;
}

/* ---- the ends */

void slate_buffer_truncate(struct slate_buffer *buffer, size_t length)
{
    if (length >= length_of(buffer))
        return;
    buffer->write = buffer->read + length;
    close_rest(buffer);
}

/* Gives whole consumed pages back, when there are enough. */
static void give_back_consumed(struct slate_buffer *buffer, size_t before)
{
    size_t page = slatei_os_page_size();
    size_t consumed = (size_t)(buffer->read - buffer->block);
    if (buffer->mapped != 0) {
        size_t front = consumed & ~(page - 1);
        if (front < GIVE_BACK)
            return;
        SLATE_TRACK_OPEN_(buffer->block, front);
        if (!slatei_large_cut_own(buffer->block, front))
            return;
        buffer->block += front;
        charge(buffer, buffer->mapped - front);
        note_mapping(buffer);
    } else if (consumed >= GIVE_BACK) {
        /* The block stays whole; only its pages go, those that were passed since the last time. */
        uintptr_t start = slatei_round_up((uintptr_t)buffer->block, page);
        uintptr_t from = ((uintptr_t)buffer->block + before) & ~(GIVE_BACK - 1);
        uintptr_t to = (uintptr_t)buffer->read & ~(GIVE_BACK - 1);
        if (from < start)
            from = start;
        if (from < to)
            slatei_os_discard((char *)from, to - from);
    }
}

static void end_block(struct slate_buffer *buffer)
{
    if (buffer->mapped != 0) {
        unmap(buffer);
        return;
    }
    if (buffer->block == NULL)
        return;
    SLATE_TRACK_OPEN_(buffer->block, capacity_of(buffer));
    if (buffer->region == NULL)
        slate_free(buffer->block);
    else /* nothing is moved by this; the newest block makes room for others */
        (void)!slate_region_realloc(buffer->region, buffer->block, capacity_of(buffer), 0);
    set_empty(buffer);
}

void slate_buffer_consume(struct slate_buffer *buffer, size_t size)
{
    size_t before = (size_t)(buffer->read - buffer->block);
    if (size < length_of(buffer)) {
        SLATE_TRACK_END_(buffer->read, size);
        buffer->read += size;
        if (before / GIVE_BACK != (before + size) / GIVE_BACK || buffer->mapped != 0)
            give_back_consumed(buffer, before);
    } else if (capacity_of(buffer) > slatei_settings.scratch) {
        end_block(buffer);
    } else {
        buffer->read = buffer->write = buffer->block;
        close_rest(buffer);
    }
}

void slate_buffer_free(struct slate_buffer *buffer) { end_block(buffer); }

void *slate_buffer_finish(struct slate_buffer *buffer, size_t *size)
{
    size_t length = length_of(buffer), capacity = capacity_of(buffer);
    char *block = buffer->block;
    if (size != NULL)
        *size = length;
    if (block == NULL) {
        block = buffer->region != NULL ? slate_region_alloc(buffer->region, 0) : slate_alloc(0);
        return block;
    }
    int saved = errno;
    SLATE_TRACK_OPEN_(block, capacity);
    if (buffer->read != block)
        memmove(block, buffer->read, length);
    char *shrunk = NULL;
    if (buffer->mapped != 0) {
        size_t copied;
        shrunk = slatei_large_resize_own(block, length == 0 ? 1 : length, &copied);
        if (shrunk != NULL) {
            charge(buffer, slatei_round_up(length == 0 ? 1 : length, slatei_os_page_size()));
            buffer->block = shrunk;
            note_mapping(buffer);
        }
    } else if (buffer->region != NULL) {
        shrunk = slate_region_realloc(buffer->region, block, capacity, length);
    } else {
        shrunk = slate_realloc(block, length);
    }
    errno = saved;
    set_empty(buffer);
    return shrunk != NULL ? shrunk : block;
}

/* ---- real symbols */

int slate_buffer_append(struct slate_buffer *buffer, const void *data, size_t size)
{
    return slate_buffer_append_inline_(buffer, data, size);
}

int slate_buffer_append_byte(struct slate_buffer *buffer, unsigned char byte)
{
    return slate_buffer_append_byte_inline_(buffer, byte);
}

char *slate_buffer_data(const struct slate_buffer *buffer) { return buffer->read; }

size_t slate_buffer_length(const struct slate_buffer *buffer) { return length_of(buffer); }
