/* bench_append.c - `slate bench append`: slate's append buffers against plain doubling.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bench.h"
#include "numbers.h"

#include <slate.h>

#include "../lib/buffer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define SOURCE_BYTES (80 * MIB)

static const char help_text[] =
    "usage: slate bench append [OPTION]...\n"
    "Compares append buffers: slate's (slate[:POLICY]), and a plain one that doubles by realloc, "
    "on\n"
    "slate (call[:POLICY]), glibc or another malloc.  For large payloads with a short append "
    "behind\n"
    "them: the peak of memory over the payload, milliseconds of the short append, bytes that "
    "growth\n"
    "copied.  For small appends: nanoseconds of each, and the ratio to the plain buffer on slate.\n"
    "\n"
    "  --with LIST       as slate replay has it, but for the floor (default: slate,doubling=call,\n"
    "                    glibc,found)\n"
    "  --runs N          runs of each, of which the median counts (default: 5)\n"
    "  --json FILE       write all runs as JSON\n"
    "  --only LIST       only these cases, separated by commas\n"
    "  --time MS         least time of a loop of small appends in milliseconds (default: 20)\n"
    "  -h, --help        print this and stop\n"
    "\n"
    "Cases:\n";

/* ---- a buffer of either kind ---- */

struct plain {
    char *data;
    size_t length, capacity;
};

struct appended {
    bool is_slate;
    struct slate_buffer buffer;
    struct plain plain;
    void *(*reallocate)(void *block, size_t size);
    void (*release)(void *block);
    uint64_t copied;
    struct bench_result *result;
};

static __attribute__((noinline)) void plain_grow(struct appended *all, size_t size)
{
    struct plain *plain = &all->plain;
    size_t capacity = plain->capacity ? plain->capacity : 64;
    while (capacity - plain->length < size)
        capacity *= 2;
    char *moved = all->reallocate(plain->data, capacity);
    if (!moved)
        bench_fail(all->result, BENCH_NO_MEMORY, NULL, capacity);
    if (moved != plain->data)
        all->copied += plain->length;
    plain->data = moved;
    plain->capacity = capacity;
}

static inline void plain_append(struct appended *all, const void *data, size_t size)
{
    struct plain *plain = &all->plain;
    if (__builtin_expect(size > plain->capacity - plain->length, 0))
        plain_grow(all, size);
    memcpy(plain->data + plain->length, data, size);
    plain->length += size;
}

static inline void append(struct appended *all, const void *data, size_t size)
{
    if (!all->is_slate)
        plain_append(all, data, size);
    else if (slate_buffer_append(&all->buffer, data, size) != 0)
        bench_fail(all->result, BENCH_NO_MEMORY, NULL, size);
}

static void append_latin1(struct appended *all, const unsigned char *text, size_t size)
{
    if (all->is_slate) {
        if (slate_buffer_append_latin1(&all->buffer, text, size) != 0)
            bench_fail(all->result, BENCH_NO_MEMORY, NULL, size);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        unsigned char bytes[2] = {text[i]};
        if (text[i] >= 0x80) {
            bytes[0] = (unsigned char)(0xc0 | text[i] >> 6);
            bytes[1] = (unsigned char)(0x80 | (text[i] & 0x3f));
        }
        plain_append(all, bytes, text[i] < 0x80 ? 1 : 2);
    }
}

/* Units from 0x800 on that are no surrogates: three bytes each. */
static void append_utf16(struct appended *all, const uint16_t *units, size_t count)
{
    if (all->is_slate) {
        if (slate_buffer_append_utf16(&all->buffer, units, count) != 0)
            bench_fail(all->result, BENCH_NO_MEMORY, NULL, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[3] = {(unsigned char)(0xe0 | units[i] >> 12),
                                  (unsigned char)(0x80 | (units[i] >> 6 & 0x3f)),
                                  (unsigned char)(0x80 | (units[i] & 0x3f))};
        plain_append(all, bytes, 3);
    }
}

static size_t capacity_of(const struct appended *all)
{
    return all->is_slate ? (size_t)(all->buffer.limit - all->buffer.block) : all->plain.capacity;
}

static size_t length_of(const struct appended *all)
{
    return all->is_slate ? slate_buffer_length(&all->buffer) : all->plain.length;
}

static void drain(struct appended *all)
{
    if (all->is_slate)
        slate_buffer_consume(&all->buffer, SIZE_MAX);
    all->plain.length = 0;
}

static void release(struct appended *all)
{
    if (all->is_slate)
        slate_buffer_free(&all->buffer);
    all->release(all->plain.data);
    all->plain = (struct plain){0};
}

static void check(const struct appended *all, size_t at, unsigned char byte)
{
    const char *data = all->is_slate ? slate_buffer_data(&all->buffer) : all->plain.data;
    if ((unsigned char)data[at] != byte)
        bench_fail(all->result, BENCH_CHANGED, data, length_of(all));
}

/* ---- cases ---- */

static unsigned char *source; /* 0xe9 everywhere */

static void append_last(struct appended *all, size_t last)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    append(all, source, last);
    clock_gettime(CLOCK_MONOTONIC, &end);
    all->result->last_seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

static void bytes(struct appended *all)
{
    append(all, source, 64 * MIB);
    append_last(all, 1);
}

static void latin1(struct appended *all)
{
    append_latin1(all, source, 32 * MIB);
    append_last(all, 2);
}

static void utf16(struct appended *all)
{
    append_utf16(all, (const uint16_t *)(const void *)source, 64 * MIB / 3);
    append_last(all, 3);
}

static void behind_small(struct appended *all)
{
    append(all, source, 10);
    append(all, source, 32 * MIB);
    append_last(all, 1);
}

static void writes(struct appended *all)
{
    for (int i = 0; i < 15; i++)
        append(all, source, 4 * MIB);
    append(all, source, 4 * MIB - 1);
    append_last(all, 1);
}

/* To twice the capacity but for `less` bytes. */
static void to_twice(struct appended *all, size_t less)
{
    append(all, source, 32 * MIB);
    append(all, source, 2 * capacity_of(all) - 32 * MIB - less);
    append_last(all, 1);
}

static void twice(struct appended *all) { to_twice(all, 0); }
static void twice_1(struct appended *all) { to_twice(all, 1); }
static void twice_4096(struct appended *all) { to_twice(all, 4096); }

static void drained(struct appended *all)
{
    append(all, source, 64 * MIB);
    drain(all);
    append(all, source, 80 * MIB);
    append_last(all, 1);
}

static const struct {
    const char *name, *text;
    void (*shape)(struct appended *all); /* or NULL: small appends of `size` up to `total` bytes */
    size_t size, total;
} cases[] = {
    {"bytes", "64 MiB, then 1 byte", bytes, 0, 0},
    {"latin1", "64 MiB of Latin-1, then 1", latin1, 0, 0},
    {"utf16", "64 MiB of UTF-16, then 1", utf16, 0, 0},
    {"behind_small", "10 B, 32 MiB, 1 B", behind_small, 0, 0},
    {"writes", "16 writes of 4 MiB", writes, 0, 0},
    {"twice", "to 2 x capacity, 1 B", twice, 0, 0},
    {"twice_1", "to 2 x - 1, 1 B", twice_1, 0, 0},
    {"twice_4096", "to 2 x - 4096, 1 B", twice_4096, 0, 0},
    {"drained", "64 MiB, drain, 80 MiB, 1 B", drained, 0, 0},
    {"small_16", "16 B to 512 KiB", NULL, 16, MIB / 2},
    {"small_100", "100 B to 512 KiB", NULL, 100, MIB / 2},
    {"small_4k", "4 KiB to 512 KiB", NULL, 4096, MIB / 2},
    {"long_16", "16 B to 16 MiB", NULL, 16, 16 * MIB},
    {"long_100", "100 B to 16 MiB", NULL, 100, 16 * MIB},
    {"long_4k", "4 KiB to 16 MiB", NULL, 4096, 16 * MIB},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static const char *case_name(size_t index) { return index < CASES ? cases[index].name : NULL; }

static const char *case_text(size_t index) { return cases[index].text; }

static inline __attribute__((always_inline)) void fill_by(struct appended *all, size_t size,
                                                          size_t total)
{
    if (all->is_slate) {
        for (size_t done = 0; done + size <= total; done += size)
            if (slate_buffer_append(&all->buffer, source, size) != 0)
                bench_fail(all->result, BENCH_NO_MEMORY, NULL, size);
    } else {
        for (size_t done = 0; done + size <= total; done += size)
            plain_append(all, source, size);
    }
}

/* Sizes as a program has them: known when it is compiled. */
static void fill(struct appended *all, size_t size, size_t total)
{
    if (size == 16)
        fill_by(all, 16, total);
    else if (size == 100)
        fill_by(all, 100, total);
    else
        fill_by(all, 4096, total);
}

static void run_small(struct appended *all, size_t index, double least)
{
    size_t size = cases[index].size, total = cases[index].total;
    struct timespec start, end;
    double seconds = 0;
    fill(all, size, total); /* a warm-up */
    release(all);
    for (uint64_t rounds = 1; seconds < least; rounds *= 2) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        for (uint64_t i = 0; i < rounds; i++) {
            fill(all, size, total);
            check(all, size, 0xe9);
            release(all);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        seconds =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
        all->result->operations = rounds * (total / size);
    }
    all->result->cpu_seconds = seconds;
}

static void run(size_t index, enum replay_kind kind, const struct bench_settings *settings,
                struct bench_result *result)
{
    static struct appended all;
    all.result = result;
    all.is_slate = kind == KIND_SLATE;
    all.reallocate = kind == KIND_MALLOC ? realloc : slate_realloc;
    all.release = kind == KIND_MALLOC ? free : slate_free;
    slate_buffer_init(&all.buffer, NULL);
    source = child_map(SOURCE_BYTES);
    if (!source)
        bench_fail(result, BENCH_SETUP_FAILED, NULL, SOURCE_BYTES);
    memset(source, 0xe9, SOURCE_BYTES);
    if (!cases[index].shape) {
        run_small(&all, index, (double)settings->milliseconds * 1e-3);
        return;
    }
    /* What the allocator has for itself is not the buffer's. */
    void *first = all.reallocate(NULL, 1);
    if (!first)
        bench_fail(result, BENCH_NO_MEMORY, NULL, 1);
    child_read_sizes();
    child_reset_peak();
    struct child_sizes before = child_read_sizes();
    cases[index].shape(&all);
    struct child_sizes after = child_read_sizes();
    result->resident_kb =
        after.peak_kb > before.resident_kb ? after.peak_kb - before.resident_kb : 0;
    result->payload = length_of(&all);
    result->copied = all.is_slate ? atomic_load(&slatei_buffer_copied) : all.copied;
    check(&all, 0, cases[index].shape == latin1 ? 0xc3 : cases[index].shape == utf16 ? 0xee : 0xe9);
    check(&all, result->payload - 1, 0xe9);
    release(&all);
    all.release(first);
}

/* ---- what is printed ---- */

static double peak_of(const struct bench_result *result)
{
    return (double)result->resident_kb * 1024 / (double)result->payload;
}

static double last_of(const struct bench_result *result) { return result->last_seconds * 1e3; }

static double copied_of(const struct bench_result *result)
{
    return (double)result->copied / (double)MIB;
}

static double nanoseconds_of(const struct bench_result *result)
{
    return result->cpu_seconds / (double)result->operations * 1e9;
}

enum { NAME_WIDTH = 28, WIDTH = 12, COLUMNS = 6 };

static void print_table(const struct bench_report *report, const char *title, bool shapes,
                        double (*value)(const struct bench_result *), int decimals, FILE *out)
{
    for (size_t first = 0; first < report->allocators->count; first += COLUMNS) {
        size_t end = first + COLUMNS;
        if (end > report->allocators->count)
            end = report->allocators->count;
        fprintf(out, "\n%-*s", NAME_WIDTH, title);
        for (size_t i = first; i < end; i++)
            fprintf(out, "%*.*s", WIDTH, WIDTH - 1, report->allocators->items[i].label);
        fputc('\n', out);
        for (size_t place = 0; place < report->case_count; place++) {
            size_t index = report->cases[place];
            if ((cases[index].shape != NULL) != shapes)
                continue;
            fprintf(out, "%-*s", NAME_WIDTH, cases[index].text);
            for (size_t i = first; i < end; i++)
                print_cell(out, bench_median(report, place, i, value), WIDTH, decimals);
            fputc('\n', out);
        }
    }
}

/* Slate's buffer against the plain one on slate, when both are in the list. */
static void print_ratios(const struct bench_report *report, FILE *out)
{
    size_t ours = report->allocators->count, plain = ours;
    for (size_t i = report->allocators->count; i-- > 0;) {
        if (report->allocators->items[i].kind == KIND_SLATE)
            ours = i;
        if (report->allocators->items[i].kind == KIND_CALL)
            plain = i;
    }
    if (ours == report->allocators->count || plain == report->allocators->count)
        return;
    fprintf(out, "\n%-*s%*.*s\n", NAME_WIDTH, "x plain doubling on slate", WIDTH, WIDTH - 1,
            report->allocators->items[ours].label);
    for (size_t place = 0; place < report->case_count; place++) {
        if (cases[report->cases[place]].shape)
            continue;
        fprintf(out, "%-*s", NAME_WIDTH, cases[report->cases[place]].text);
        print_cell(out,
                   bench_median(report, place, ours, nanoseconds_of) /
                       bench_median(report, place, plain, nanoseconds_of),
                   WIDTH, 3);
        fputc('\n', out);
    }
}

static void print(const struct bench_report *report, FILE *out)
{
    bool shapes = false, small = false;
    for (size_t place = 0; place < report->case_count; place++)
        *(cases[report->cases[place]].shape ? &shapes : &small) = true;
    fprintf(out, "append: medians of %d run%s, each in a process of its own\n", report->runs,
            report->runs == 1 ? "" : "s");
    if (shapes) {
        print_table(report, "peak over payload", true, peak_of, 3, out);
        print_table(report, "ms of the last append", true, last_of, 4, out);
        print_table(report, "MiB moved by growth", true, copied_of, 1, out);
        fputs(
            "(a realloc that answers another address counts as moved, also where the malloc moved\n"
            "page tables)\n",
            out);
    }
    if (small) {
        print_table(report, "ns an append", false, nanoseconds_of, 2, out);
        print_ratios(report, out);
    }
}

static json_t *json_run(const struct bench_result *result)
{
    if (!result->payload)
        return json_pack("{s:f,s:I}", "ns", nanoseconds_of(result), "operations",
                         (json_int_t)result->operations);
    return json_pack("{s:I,s:I,s:f,s:I}", "peak_kb", (json_int_t)result->resident_kb, "payload",
                     (json_int_t)result->payload, "last_ms", last_of(result), "moved",
                     (json_int_t)result->copied);
}

const struct bench bench_append = {.name = "append",
                                   .options = "om",
                                   .help = help_text,
                                   .all = "slate,doubling=call,glibc,found",
                                   .case_name = case_name,
                                   .case_text = case_text,
                                   .print = print,
                                   .json_run = json_run,
                                   .run = run};
