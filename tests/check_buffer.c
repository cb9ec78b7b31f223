/* tests/check_buffer.c - append buffers: contents, growth, conversions, the read cursor, peaks.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "buffer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "check_support.h"
#include "large.h"
#include "region.h"

#if defined(SLATE_TRACK_ADDRESS)
#define POISONED(address) (__asan_address_is_poisoned(address) != 0)
#define TRACKED 1
#else
#define POISONED(address) ((void)(address), true)
#define TRACKED 0
#endif

static size_t heap_in_use(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats.in_use + stats.own_mappings;
}

static size_t capacity_of(const struct slate_buffer *buffer)
{
    return (size_t)(buffer->limit - buffer->block);
}

static size_t room_of(const struct slate_buffer *buffer)
{
    return (size_t)(buffer->limit - buffer->write);
}

/* Runs `body` on a buffer on the heap and on one in a region. */
static void both(void (*body)(struct slate_buffer *))
{
    struct slate_buffer buffer;
    slate_buffer_init(&buffer, NULL);
    body(&buffer);
    slate_buffer_free(&buffer);
    require_equal(heap_in_use(), 0);
    struct slate_region *region = slate_region_create();
    require(region != NULL);
    slate_buffer_init(&buffer, region);
    body(&buffer);
    slate_buffer_free(&buffer);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* ---- growth */

/* The rule, as numbers. */
CHILD_TEST(capacities)
{
    require_equal(slatei_buffer_grown(0, 1), 64);
    require_equal(slatei_buffer_grown(64, 65), 128);
    require_equal(slatei_buffer_grown(64, 1000), 1024);
    require_equal(slatei_buffer_grown(0, 512 * KIB), 512 * KIB);
    require_equal(slatei_buffer_grown(256 * KIB, 300 * KIB), 512 * KIB);
    require_equal(slatei_buffer_grown(512 * KIB, 512 * KIB + 1), MIB);
    /* An exact fit, and what is nearly one. */
    require_equal(slatei_buffer_grown(0, MIB), MIB + 4096);
    require_equal(slatei_buffer_grown(0, 64 * MIB), 64 * MIB + 4096);
    require_equal(slatei_buffer_grown(512 * KIB, MIB - 1), MIB - 1 + 4096);
    require_equal(slatei_buffer_grown(512 * KIB, MIB - 4096), MIB);
    require_equal(slatei_buffer_grown(4 * MIB, 8 * MIB), 8 * MIB + 4096);
    require_equal(slatei_buffer_grown(4 * MIB, 8 * MIB - 1), 8 * MIB - 1 + 4096);
    require_equal(slatei_buffer_grown(4 * MIB, 8 * MIB - 4095), 8 * MIB + 1);
    require_equal(slatei_buffer_grown(4 * MIB, 8 * MIB - 4096), 8 * MIB);
    require_equal(slatei_buffer_grown(4 * MIB, 8 * MIB - 4097), 8 * MIB);
    require_equal(slatei_buffer_grown(4 * MIB, 4 * MIB + 1), 8 * MIB);
    require_equal(slatei_buffer_grown(4 * MIB, 40 * MIB), 40 * MIB + 4096);
    /* Nowhere from 1 MiB on is there less room than that. */
    for (size_t capacity = 64; capacity < 64 * MIB;
         capacity = capacity * 2 + capacity / 4096 * 4096)
        for (size_t needed = capacity + 1; needed < 140 * MIB; needed += needed / 3 + 1)
            for (size_t off = 0; off <= 8192; off += 1024) {
                size_t grown = slatei_buffer_grown(capacity, needed + off);
                require_at_least(grown, needed + off);
                require(grown < MIB || grown >= needed + off + 4096);
            }
}

static void grow_small(struct slate_buffer *buffer)
{
    /* Below 1 MiB: plain doubling, whatever is appended. */
    size_t length = 0, step = 1, capacity = 0;
    while (length < 500 * KIB) {
        char bytes[700];
        memset(bytes, (int)length, sizeof bytes);
        require_equal(slate_buffer_append(buffer, bytes, step), 0);
        length += step;
        step = step % 700 + 1;
        require_equal(slate_buffer_length(buffer), length);
        if (capacity_of(buffer) != capacity) {
            require(capacity == 0 ? capacity_of(buffer) == 64
                                  : capacity_of(buffer) % capacity == 0);
            capacity = capacity_of(buffer);
            require_equal(capacity & (capacity - 1), 0);
        }
    }
    const char *data = slate_buffer_data(buffer);
    for (size_t at = 0, i = 1; at + i <= length; at += i, i = i % 700 + 1)
        require(data[at] == (char)at && data[at + i - 1] == (char)at);
    slate_buffer_free(buffer);
    require_equal(slate_buffer_length(buffer), 0);
}

CHILD_TEST(growth_by_small_appends) { both(grow_small); }

/* Appends `size` bytes that `fill` makes of `number`. */
static void append_filled(struct slate_buffer *buffer, char *source, size_t size, uint64_t number)
{
    fill(source, size, number);
    require_equal(slate_buffer_append(buffer, source, size), 0);
}

static void grow_large(struct slate_buffer *buffer)
{
    static char source[3 * MIB];
    size_t sizes[200], count = 0, length = 0;
    struct random random = {seed_of_run()};
    size_t copied = atomic_load(&slatei_buffer_copied);
    while (length < (slow_here() ? 10 : 70) * MIB) {
        size_t size = 1 + below(&random, count % 3 == 0 ? sizeof source : 5000);
        require(count < 200);
        append_filled(buffer, source, size, count);
        sizes[count++] = size;
        length += size;
    }
    require_equal(slate_buffer_length(buffer), length);
    require_equal(atomic_load(&slatei_buffer_copied), copied);
    const char *data = slate_buffer_data(buffer);
    for (size_t i = 0; i < count; data += sizes[i++])
        require(holds(data, sizes[i], sizes[i], i));
    slate_buffer_truncate(buffer, sizes[0]);
    slate_buffer_truncate(buffer, sizes[0] + 1);
    require_equal(slate_buffer_length(buffer), sizes[0]);
    require(holds(slate_buffer_data(buffer), sizes[0], sizes[0], 0));
}

CHILD_TEST(growth_of_large_ones) { both(grow_large); }

CHILD_TEST(reserve_and_bytes)
{
    struct slate_buffer buffer;
    slate_buffer_init(&buffer, NULL);
    require_equal(slate_buffer_reserve(&buffer, 0), 0);
    require(slate_buffer_data(&buffer) == NULL);
    require_equal(slate_buffer_append(&buffer, NULL, 0), 0);
    require_equal(slate_buffer_reserve(&buffer, 300), 0);
    require_at_least(room_of(&buffer), 300);
    const char *data = slate_buffer_data(&buffer);
    for (unsigned i = 0; i < 300; i++)
        require_equal(slate_buffer_append_byte(&buffer, (unsigned char)i), 0);
    require(slate_buffer_data(&buffer) == data);
    for (unsigned i = 300; i < 100000; i++)
        require_equal(slate_buffer_append_byte(&buffer, (unsigned char)i), 0);
    require_equal(slate_buffer_length(&buffer), 100000);
    for (unsigned i = 0; i < 100000; i++)
        require(slate_buffer_data(&buffer)[i] == (char)i);
    slate_buffer_free(&buffer);
    slate_buffer_free(&buffer);
    require_equal(heap_in_use(), 0);
}

static void print_much(struct slate_buffer *buffer)
{
    char expected[128];
    size_t length = 0;
    for (unsigned i = 0; i < 20000; i++) {
        int size = snprintf(expected, sizeof expected, "%u: %s%%\n", i, "text");
        errno = 7;
        require_equal(slate_buffer_printf(buffer, "%u: %s%%\n", i, "text"), 0);
        require_equal(errno, 7);
        require(memcmp(slate_buffer_data(buffer) + length, expected, (size_t)size) == 0);
        length += (size_t)size;
        require_equal(slate_buffer_length(buffer), length);
    }
    require_equal(slate_buffer_printf(buffer, "%01500000d", 1), 0);
    require_equal(slate_buffer_length(buffer), length + 1500000);
}

CHILD_TEST(formatted) { both(print_much); }

/* ---- conversions, against the plain definition */

static size_t encode(uint32_t code, unsigned char *to)
{
    if (code < 0x80) {
        to[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (unsigned char)(0xc0 + code / 64);
        to[1] = (unsigned char)(0x80 + code % 64);
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (unsigned char)(0xe0 + code / 4096);
        to[1] = (unsigned char)(0x80 + code / 64 % 64);
        to[2] = (unsigned char)(0x80 + code % 64);
        return 3;
    }
    to[0] = (unsigned char)(0xf0 + code / 262144);
    to[1] = (unsigned char)(0x80 + code / 4096 % 64);
    to[2] = (unsigned char)(0x80 + code / 64 % 64);
    to[3] = (unsigned char)(0x80 + code % 64);
    return 4;
}

static void convert(struct slate_buffer *buffer)
{
    struct random random = {seed_of_run()};
    static unsigned char latin1[3000], expected[9000];
    static uint16_t units[3000];
    for (unsigned round = 0; round < 300; round++) {
        size_t count = below(&random, 3000), length = 0;
        for (size_t i = 0; i < count; i++) {
            latin1[i] = (unsigned char)(round % 3 == 0 ? below(&random, 128) : below(&random, 256));
            length += encode(latin1[i], expected + length);
        }
        slate_buffer_truncate(buffer, 0);
        require_equal(slate_buffer_append_latin1(buffer, latin1, count), 0);
        require_equal(slate_buffer_length(buffer), length);
        require(length == 0 || memcmp(slate_buffer_data(buffer), expected, length) == 0);
        length = 0;
        for (size_t i = 0; i < count; i++) {
            static const uint32_t limits[] = {0x80, 0x800, 0x10000};
            units[i] = (uint16_t)below(&random, limits[below(&random, 3)]);
            if (round % 2 == 0 && below(&random, 4) == 0)
                units[i] = (uint16_t)(0xd800 + below(&random, 0x800));
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t code = units[i];
            if (code >= 0xd800 && code < 0xdc00 && i + 1 < count && units[i + 1] >= 0xdc00 &&
                units[i + 1] < 0xe000)
                code = 0x10000 + (code - 0xd800) * 1024 + units[++i] - 0xdc00;
            else if (code >= 0xd800 && code < 0xe000)
                code = 0xfffd;
            length += encode(code, expected + length);
        }
        slate_buffer_truncate(buffer, 0);
        require_equal(slate_buffer_append_utf16(buffer, units, count), 0);
        require_equal(slate_buffer_length(buffer), length);
        require(length == 0 || memcmp(slate_buffer_data(buffer), expected, length) == 0);
    }
    /* Sized first: one growth, an exact fit. */
    slate_buffer_free(buffer);
    slate_purge(); /* no block of another buffer is kept */
    static unsigned char high[2 * MIB];
    memset(high, 0xe9, sizeof high);
    require_equal(slate_buffer_append_latin1(buffer, high, sizeof high), 0);
    require_equal(slate_buffer_length(buffer), 2 * sizeof high);
    require_equal(capacity_of(buffer), 2 * sizeof high + 4096);
    slate_buffer_free(buffer);
    slate_purge();
    memset(high, 0xd8, sizeof high);
    require_equal(slate_buffer_append_utf16(buffer, (const uint16_t *)(const void *)high, MIB), 0);
    require_equal(slate_buffer_length(buffer), 3 * MIB);
    require_equal(capacity_of(buffer), 3 * MIB + 4096);
}

CHILD_TEST(conversions) { both(convert); }

/* ---- the read cursor */

static void queue(struct slate_buffer *buffer)
{
    /* A queue of words whose length swings; its memory must not follow what went through it. */
    struct random random = {seed_of_run()};
    uint32_t put = 0, taken = 0;
    size_t most = 0, most_length = 0;
    for (unsigned i = 0; i < (slow_here() ? 4000u : 40000u); i++) {
        size_t wave = i / 1000 % 4 == 3 ? 500000 : i / 1000 % 4 == 1 ? 20000 : 300;
        while (put - taken < below(&random, wave)) {
            uint32_t block[256];
            for (unsigned j = 0; j < 256; j++)
                block[j] = put++;
            require_equal(slate_buffer_append(buffer, block, sizeof block), 0);
        }
        size_t length = slate_buffer_length(buffer);
        require_equal(length, (put - taken) * sizeof put);
        if (length > most_length)
            most_length = length;
        size_t words = below(&random, 2 * (wave < put - taken ? put - taken - wave : 1000));
        if (words > put - taken)
            words = put - taken;
        for (size_t at = 0; at < words; at += words / 3 + 1) {
            uint32_t word;
            memcpy(&word, slate_buffer_data(buffer) + at * sizeof word, sizeof word);
            require_equal(word, taken + at);
        }
        slate_buffer_consume(buffer, words * sizeof put);
        taken += (uint32_t)words;
        if (capacity_of(buffer) > most)
            most = capacity_of(buffer);
    }
    require_at_most(most, 4 * most_length + MIB);
    slate_buffer_consume(buffer, SIZE_MAX);
    require_equal(slate_buffer_length(buffer), 0);
}

CHILD_TEST(a_queue) { both(queue); }

CHILD_TEST(a_drained_buffer)
{
    struct slate_buffer buffer;
    static char source[5 * MIB];
    slate_buffer_init(&buffer, NULL);
    for (size_t size = 1000; size <= sizeof source; size = size * 3) {
        append_filled(&buffer, source, size, 6);
        size_t capacity = capacity_of(&buffer);
        slate_buffer_consume(&buffer, size);
        require_equal(slate_buffer_length(&buffer), 0);
        require_equal(capacity_of(&buffer), capacity <= 64 * KIB ? capacity : 0);
    }
    require_equal(heap_in_use(), 0);
    slate_buffer_free(&buffer);
}

/* Consumed pages are not in memory any more. */
CHILD_TEST(consumed_pages_go_back)
{
    SKIP_UNDER_TOOLS();
    static char source[MIB];
    memset(source, 1, sizeof source);
    for (unsigned small = 0; small < 2; small++) {
        struct slate_buffer buffer;
        slate_buffer_init(&buffer, NULL);
        size_t size = small ? 900 * KIB : 32 * MIB;
        for (size_t done = 0; done < size; done += small ? size : sizeof source)
            require_equal(slate_buffer_append(&buffer, source, small ? size : sizeof source), 0);
        size_t before = status_bytes("VmRSS");
        for (size_t done = 0; done < size - 100 * KIB; done += 10000)
            slate_buffer_consume(&buffer, 10000);
        size_t after = status_bytes("VmRSS"), left = slate_buffer_length(&buffer);
        require_at_least(before, after + size - left - 300 * KIB);
        require(all_zero(slate_buffer_data(&buffer), 0));
        for (size_t i = 0; i < left; i++)
            require(slate_buffer_data(&buffer)[i] == 1);
        slate_buffer_free(&buffer);
    }
    require_equal(heap_in_use(), 0);
}

/* The block of a buffer that ended serves the next one, until it is purged. */
CHILD_TEST(a_kept_block_serves)
{
    static char source[5 * MIB];
    struct slate_buffer buffer;
    slate_buffer_init(&buffer, NULL);
    append_filled(&buffer, source, sizeof source, 1);
    const char *data = slate_buffer_data(&buffer);
    size_t capacity = capacity_of(&buffer);
    slate_buffer_free(&buffer);
    require_equal(heap_in_use(), 0);
    require_equal(slatei_large_spare_own(), capacity);
    size_t faults = minor_faults();
    for (unsigned i = 0; i < 20; i++) {
        append_filled(&buffer, source, 2 * MIB, i);
        require(slate_buffer_data(&buffer) == data);
        require_equal(capacity_of(&buffer), capacity);
        require(holds(slate_buffer_data(&buffer), 2 * MIB, 2 * MIB, i));
        require_equal(slatei_large_spare_own(), 0);
        slate_buffer_free(&buffer);
    }
    if (!slow_here())
        require_at_most(minor_faults() - faults, 20);
    require_at_least(slate_purge(), SANITIZED ? 0 : 5 * MIB);
    require_equal(slatei_large_spare_own(), 0);
    /* A larger one takes its place, a smaller one does not, and there is an end to it. */
    struct slate_buffer other;
    slate_buffer_init(&other, NULL);
    require_equal(slate_buffer_reserve(&buffer, 4 * MIB), 0);
    require_equal(slate_buffer_reserve(&other, 2 * MIB), 0);
    slate_buffer_free(&buffer);
    slate_buffer_free(&other);
    require_equal(slatei_large_spare_own(), 4 * MIB + 4096);
    require_equal(slate_buffer_reserve(&buffer, 33 * MIB), 0);
    slate_buffer_free(&buffer);
    require_equal(slatei_large_spare_own(), 4 * MIB + 4096);
    slate_thread_idle();
    require_equal(slatei_large_spare_own(), 0);
}

/* ---- finish */

static void finish_all(struct slate_buffer *buffer)
{
    static char source[3 * MIB];
    static const size_t sizes[] = {1, 100, 5000, 64 * KIB, 700 * KIB, MIB, 3 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned consumed = 0; consumed < 3; consumed++) {
            size_t front = consumed == 0 ? 0 : consumed == 1 ? 3 : sizes[i] / 2;
            if (front >= sizes[i])
                continue;
            append_filled(buffer, source, sizes[i], i);
            slate_buffer_consume(buffer, front);
            size_t size = 0;
            char *block = slate_buffer_finish(buffer, &size);
            require(block != NULL);
            require_equal(size, sizes[i] - front);
            require(memcmp(block, source + front, size) == 0);
            require_equal(slate_buffer_length(buffer), 0);
            if (buffer->region == NULL) {
                require_at_most(slate_usable_size(block), size + size / 8 + 4096);
                slate_free(block);
            }
        }
    size_t size = 1;
    char *empty = slate_buffer_finish(buffer, &size);
    require(empty != NULL);
    require_equal(size, 0);
    if (buffer->region == NULL)
        slate_free(empty);
    require_equal(slate_buffer_printf(buffer, "%s", "again"), 0);
    char *text = slate_buffer_finish(buffer, NULL);
    require(memcmp(text, "again", 5) == 0);
    if (buffer->region == NULL)
        slate_free(text);
}

CHILD_TEST(finished) { both(finish_all); }

/* ---- in a region */

CHILD_TEST(ends_with_its_region)
{
    static char source[6 * MIB];
    struct slate_region *region = slate_region_create();
    struct slate_buffer one, two;
    slate_buffer_init(&one, region);
    append_filled(&one, source, 2 * MIB, 1);
    struct slate_region_mark mark = slate_region_mark(region);
    slate_buffer_init(&two, region);
    append_filled(&two, source, 6 * MIB, 2);
    size_t both_in_use = heap_in_use();
    require_at_least(both_in_use, 8 * MIB);
    struct slate_region_stats before, after;
    slate_region_stats(region, &before, sizeof before);
    slate_buffer_consume(&two, 5 * MIB);
    slate_region_stats(region, &after, sizeof after);
    require_at_most(after.kept, before.kept - 5 * MIB + 64 * KIB);
    slate_region_rewind(region, mark);
    require_at_most(heap_in_use(), both_in_use - 6 * MIB);
    require(holds(slate_buffer_data(&one), 2 * MIB, 2 * MIB, 1));
    struct slate_region_stats stats;
    slate_region_stats(region, &stats, sizeof stats);
    require_at_least(stats.kept, 2 * MIB);
    slate_region_reset(region, 0);
    require_at_most(heap_in_use(), 4096);
    slate_region_stats(region, &stats, sizeof stats);
    require_equal(stats.kept, 0);
    /* The limit holds for mappings too, and a refused append leaves everything as it was. */
    slate_region_limit(region, 5 * MIB);
    slate_buffer_init(&one, region);
    append_filled(&one, source, 2 * MIB, 3);
    require_equal(slate_buffer_append(&one, source, 6 * MIB), ENOMEM);
    require(slate_buffer_length(&one) == 2 * MIB);
    require(holds(slate_buffer_data(&one), 2 * MIB, 2 * MIB, 3));
    require_equal(slate_buffer_append(&one, source, 2 * MIB), 0);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* ---- no memory */

CHILD_TEST(too_large)
{
    struct slate_buffer buffer;
    volatile size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)PTRDIFF_MAX - 10, SIZE_MAX / 8};
    slate_buffer_init(&buffer, NULL);
    require_equal(slate_buffer_append(&buffer, "kept", 4), 0);
    for (unsigned i = 0; i < 4; i++) {
        errno = 3;
        require_equal(slate_buffer_reserve(&buffer, sizes[i]), ENOMEM);
        require_equal(errno, 3);
        require_equal(slate_buffer_length(&buffer), 4);
    }
    require_equal(slate_buffer_append_latin1(&buffer, "", sizes[0]), ENOMEM);
    require_equal(slate_buffer_append_utf16(&buffer, NULL, sizes[0]), ENOMEM);
    require(memcmp(slate_buffer_data(&buffer), "kept", 4) == 0);
    slate_buffer_free(&buffer);
}

CHILD_TEST(out_of_memory)
{
    SKIP_UNDER_TOOLS();
    struct slate_buffer buffer;
    static char source[MIB];
    memset(source, 1, sizeof source);
    slate_buffer_init(&buffer, NULL);
    require_equal(slate_buffer_append(&buffer, source, 1000), 0);
    limit_growth(RLIMIT_AS, 40 * MIB);
    size_t length = 1000;
    int error;
    while ((error = slate_buffer_append(&buffer, source, sizeof source)) == 0)
        length += sizeof source;
    require_equal(error, ENOMEM);
    require_at_least(length, 10 * MIB);
    require_at_most(length, 40 * MIB);
    require_equal(slate_buffer_length(&buffer), length);
    for (size_t i = 0; i < length; i += 999)
        require(slate_buffer_data(&buffer)[i] == 1);
    slate_buffer_free(&buffer);
    require_equal(slate_buffer_append(&buffer, source, sizeof source), 0);
    slate_buffer_free(&buffer);
}

/* ---- peaks: the published shapes */

static void reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return; /* the child is fresh: its peak is what it has now, or was touched just before */
    ssize_t written = write(file, "5", 1);
    (void)written;
    close(file);
}

static char *large_source;
static struct slate_buffer shaped;

static void put(size_t size) { require_equal(slate_buffer_append(&shaped, large_source, size), 0); }

static void bytes_then_one(void)
{
    put(64 * MIB);
    put(1);
}

static void latin1_then_one(void)
{
    require_equal(slate_buffer_append_latin1(&shaped, large_source, 64 * MIB / 2), 0);
    require_equal(slate_buffer_append_latin1(&shaped, large_source, 1), 0);
}

static void utf16_then_one(void)
{
    const uint16_t *units = (const uint16_t *)(const void *)large_source;
    require_equal(slate_buffer_append_utf16(&shaped, units, 21 * MIB), 0);
    require_equal(slate_buffer_append_utf16(&shaped, units, 1), 0);
}

static void behind_a_small_one(void)
{
    put(10);
    put(32 * MIB);
    put(1);
}

static void sixteen_writes(void)
{
    for (unsigned i = 0; i < 16; i++)
        put(4 * MIB);
}

static void grow_to(size_t less)
{
    put(16 * MIB);
    size_t capacity = capacity_of(&shaped);
    put(2 * capacity - 16 * MIB - less);
    put(1);
}

static void twice(void) { grow_to(0); }
static void twice_less_one(void) { grow_to(1); }
static void twice_less_room(void) { grow_to(4096); }

static void after_a_drain(void)
{
    put(64 * MIB);
    slate_buffer_consume(&shaped, 64 * MIB);
    put(80 * MIB);
    put(1);
}

static void check_peak(void (*shape)(void))
{
    SKIP_UNDER_TOOLS();
    large_source = mmap(NULL, 80 * MIB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    require(large_source != MAP_FAILED);
    memset(large_source, 0xd8, 80 * MIB); /* two bytes each as Latin-1, three as UTF-16 */
    slate_buffer_init(&shaped, NULL);
    void *warm = slate_alloc(1);
    reset_peak();
    size_t before = status_bytes("VmRSS");
    shape();
    size_t peak = status_bytes("VmHWM") - before;
    require_at_most(peak, slate_buffer_length(&shaped) + slate_buffer_length(&shaped) / 100);
    require_equal(atomic_load(&slatei_buffer_copied), 0);
    slate_buffer_free(&shaped);
    slate_free(warm);
}

CHILD_TEST(peak_bytes) { check_peak(bytes_then_one); }
CHILD_TEST(peak_latin1) { check_peak(latin1_then_one); }
CHILD_TEST(peak_utf16) { check_peak(utf16_then_one); }
CHILD_TEST(peak_behind_a_small_one) { check_peak(behind_a_small_one); }
CHILD_TEST(peak_sixteen_writes) { check_peak(sixteen_writes); }
CHILD_TEST(peak_twice) { check_peak(twice); }
CHILD_TEST(peak_twice_less_one) { check_peak(twice_less_one); }
CHILD_TEST(peak_twice_less_room) { check_peak(twice_less_room); }
CHILD_TEST(peak_after_a_drain) { check_peak(after_a_drain); }

/* ---- what is not the buffer's contents is poisoned */

CHILD_TEST(ended_bytes_are_poisoned)
{
    if (!TRACKED) {
        dprintf(STDOUT_FILENO, "%s: skipped: not built with AddressSanitizer\n", __func__);
        return;
    }
    static char source[2 * MIB];
    for (unsigned i = 0; i < 3; i++) {
        struct slate_buffer buffer;
        struct slate_region *region = i == 1 ? slate_region_create() : NULL;
        slate_buffer_init(&buffer, region);
        size_t size = i == 2 ? sizeof source : 1000;
        append_filled(&buffer, source, size, 1);
        char *data = slate_buffer_data(&buffer);
        require(!POISONED(data) && !POISONED(data + size - 1) && POISONED(data + size));
        slate_buffer_truncate(&buffer, 512);
        require(!POISONED(data + 511) && POISONED(data + 512));
        slate_buffer_consume(&buffer, 64);
        require(POISONED(data) && POISONED(data + 63) && !POISONED(data + 64));
        append_filled(&buffer, source, size, 2);
        slate_buffer_consume(&buffer, size);
        require_equal(slate_buffer_length(&buffer), 448);
        size_t length;
        char *block = slate_buffer_finish(&buffer, &length);
        require(!POISONED(block) && !POISONED(block + length - 1));
        if (region == NULL)
            slate_free(block);
        slate_region_destroy(region);
    }
}

/* ---- threads: each its own buffers, blocks handed over */

static void *work(void *argument)
{
    struct random random = {*(uint64_t *)argument};
    static _Thread_local char source[300000];
    for (unsigned i = 0; i < (slow_here() ? 10u : 60u); i++) {
        struct slate_buffer buffer;
        slate_buffer_init(&buffer, NULL);
        size_t size = below(&random, sizeof source), times = 1 + below(&random, 12);
        for (size_t j = 0; j < times; j++)
            append_filled(&buffer, source, size, i);
        slate_buffer_consume(&buffer, size / 2);
        char *block = slate_buffer_finish(&buffer, NULL);
        require(memcmp(block, source + size / 2, size - size / 2) == 0);
        slate_free(block);
    }
    return NULL;
}

CHILD_TEST(threads)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        require_equal(pthread_create(&threads[i], NULL, work, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    slate_purge();
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(real_symbols)
{
    int (*volatile append)(struct slate_buffer *, const void *, size_t) = slate_buffer_append;
    int (*volatile byte)(struct slate_buffer *, unsigned char) = slate_buffer_append_byte;
    char *(*volatile data)(const struct slate_buffer *) = slate_buffer_data;
    size_t (*volatile length)(const struct slate_buffer *) = slate_buffer_length;
    struct slate_buffer buffer;
    slate_buffer_init(&buffer, NULL);
    require_equal(append(&buffer, "abc", 3), 0);
    require_equal(byte(&buffer, 'd'), 0);
    require_equal(length(&buffer), 4);
    require(memcmp(data(&buffer), "abcd", 4) == 0);
    slate_buffer_free(&buffer);
}

int main(void)
{
    Suite *suite = suite_create("buffer");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, capacities);
    tcase_add_test(tests, growth_by_small_appends);
    tcase_add_test(tests, growth_of_large_ones);
    tcase_add_test(tests, reserve_and_bytes);
    tcase_add_test(tests, formatted);
    tcase_add_test(tests, conversions);
    tcase_add_test(tests, a_queue);
    tcase_add_test(tests, a_drained_buffer);
    tcase_add_test(tests, consumed_pages_go_back);
    tcase_add_test(tests, a_kept_block_serves);
    tcase_add_test(tests, finished);
    tcase_add_test(tests, ends_with_its_region);
    tcase_add_test(tests, too_large);
    tcase_add_test(tests, out_of_memory);
    tcase_add_test(tests, peak_bytes);
    tcase_add_test(tests, peak_latin1);
    tcase_add_test(tests, peak_utf16);
    tcase_add_test(tests, peak_behind_a_small_one);
    tcase_add_test(tests, peak_sixteen_writes);
    tcase_add_test(tests, peak_twice);
    tcase_add_test(tests, peak_twice_less_one);
    tcase_add_test(tests, peak_twice_less_room);
    tcase_add_test(tests, peak_after_a_drain);
    tcase_add_test(tests, ended_bytes_are_poisoned);
    tcase_add_test(tests, threads);
    tcase_add_test(tests, real_symbols);
    return run_suite(suite);
}
