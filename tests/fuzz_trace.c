/* fuzz_trace.c - changes a real trace at random, over and over, and reads it: the reader never
 * crashes, never gives out what the format forbids, and a message names file and record.
 *
 * SPDX-License-Identifier: MIT
 *
 * fuzz_trace [ROUNDS [SEED [TRACE]]]: the same arguments do the same again.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

/* Under sanitizers a round takes some eighty times as long. */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 100 };
#elif defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 1500 };
#else
enum { ROUNDS = 4000 };
#endif
enum { CHANGES_MAX = 6, RAW_BYTES_MAX = 1 << 20 };

static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit) { return limit ? (size_t)(next_random() % limit) : 0; }

struct bytes {
    unsigned char *at;
    size_t length, room;
};

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "fuzz_trace: %s\n", what);
    exit(EXIT_FAILURE);
}

static struct bytes allocate(size_t room)
{
    struct bytes bytes = {malloc(room), 0, room};
    if (!bytes.at)
        stop("out of memory");
    return bytes;
}

static struct bytes read_file(const char *name)
{
    struct bytes bytes = allocate(RAW_BYTES_MAX);
    FILE *file = fopen(name, "rb");
    if (!file)
        stop("the trace cannot be opened");
    bytes.length = fread(bytes.at, 1, bytes.room, file);
    fclose(file);
    return bytes;
}

static void write_file(const char *name, const unsigned char *at, size_t length)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(at, 1, length, file) != length || fclose(file) != 0)
        stop("the changed trace cannot be written");
}

/* One change: a byte set, a bit turned, a part taken out, put twice or moved, the end cut off. */
static void change(struct bytes *bytes)
{
    size_t at = below(bytes->length);
    size_t length = below(32) + 1;
    if (bytes->length == 0)
        return;
    if (length > bytes->length - at)
        length = bytes->length - at;
    switch (below(7)) {
    case 0:
        bytes->at[at] = (unsigned char)next_random();
        break;
    case 1:
        bytes->at[at] ^= (unsigned char)(1 << below(8));
        break;
    case 2:
        memmove(bytes->at + at, bytes->at + at + length, bytes->length - at - length);
        bytes->length -= length;
        break;
    case 3:
        if (bytes->length + length > bytes->room)
            return;
        memmove(bytes->at + at + length, bytes->at + at, bytes->length - at);
        bytes->length += length;
        break;
    case 4:
        bytes->length = at;
        break;
    case 5:
        memset(bytes->at + at, below(2) ? 0xff : 0x80, length);
        break;
    default:
        bytes->at[at] = (unsigned char)below(10); /* likely another tag */
    }
}

struct counts {
    uint64_t good, cut_short, rejected, not_opened;
};

static void check_message(const struct slate_trace_reader *reader, const char *name)
{
    const char *message = slate_trace_message(reader);
    if (strncmp(message, name, strlen(name)) != 0 ||
        strncmp(message + strlen(name), ": record ", 9) != 0 || strchr(message, '\n'))
        stop("a message does not name file and record");
}

/* Reads the trace to its end and checks each record against a model of its own. */
static void read_trace(const char *name, unsigned char *live, struct counts *counts)
{
    struct slate_trace_reader *reader;
    struct slate_trace_record record;
    uint64_t objects = 0, records = 0;
    int result = slate_trace_open(&reader, name);
    if (result < 0) {
        check_message(reader, name);
        slate_trace_close(reader);
        counts->not_opened++;
        return;
    }
    while ((result = slate_trace_next(reader, &record)) == 1) {
        if (record.number != ++records)
            stop("a record's number is wrong");
        if (record.thread > SLATE_TRACE_THREAD_MAX)
            stop("a thread index is too large");
        if (record.tag == SLATE_TRACE_FREE || record.tag == SLATE_TRACE_REALLOC) {
            if (record.ended >= objects || !live[record.ended])
                stop("an object ends that is not live");
            live[record.ended] = 0;
        }
        if (record.tag == SLATE_TRACE_MALLOC || record.tag == SLATE_TRACE_CALLOC ||
            record.tag == SLATE_TRACE_REALLOC || record.tag == SLATE_TRACE_ALIGNED) {
            if (record.object != objects || record.size > SLATE_TRACE_SIZE_MAX)
                stop("an object's number or size is wrong");
            /* A record has two bytes at least, so there are no more objects than this. */
            if (objects >= RAW_BYTES_MAX)
                stop("more objects than bytes");
            live[objects++] = 1;
        }
        if (record.tag == SLATE_TRACE_ALIGNED &&
            record.log2_alignment > SLATE_TRACE_LOG2_ALIGNMENT_MAX)
            stop("an alignment is too large");
    }
    if (result < 0) {
        check_message(reader, name);
        counts->rejected++;
    } else if (slate_trace_cut_short(reader)) {
        counts->cut_short++;
    } else {
        counts->good++;
    }
    slate_trace_close(reader);
}

/* The records of a trace, unpacked. */
static struct bytes unpack(const struct bytes *file)
{
    struct bytes raw = allocate(RAW_BYTES_MAX);
    if (file->length < SLATE_TRACE_MAGIC_LENGTH)
        stop("the trace is too short");
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {file->at, file->length, SLATE_TRACE_MAGIC_LENGTH};
    ZSTD_outBuffer out = {raw.at, raw.room, 0};
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, 31);
    if (ZSTD_decompressStream(context, &out, &in) != 0)
        stop("the trace cannot be unpacked whole");
    ZSTD_freeDCtx(context);
    raw.length = out.pos;
    return raw;
}

static void pack(const struct bytes *raw, struct bytes *file)
{
    memcpy(file->at, SLATE_TRACE_MAGIC, SLATE_TRACE_MAGIC_LENGTH);
    size_t packed = ZSTD_compress(file->at + SLATE_TRACE_MAGIC_LENGTH,
                                  file->room - SLATE_TRACE_MAGIC_LENGTH, raw->at, raw->length, 1);
    if (ZSTD_isError(packed))
        stop("the changed records cannot be packed");
    file->length = SLATE_TRACE_MAGIC_LENGTH + packed;
}

static void copy(struct bytes *to, const struct bytes *from)
{
    memcpy(to->at, from->at, from->length);
    to->length = from->length;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : ROUNDS;
    unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    char trace[4096], name[] = "/tmp/fuzz_trace.XXXXXX";
    const char *top = getenv("top_srcdir");
    snprintf(trace, sizeof trace, "%s/bench/traces/cc1-hello.slt", top ? top : ".");
    struct bytes original = read_file(argc > 3 ? argv[3] : trace);
    struct bytes raw = unpack(&original);
    struct bytes changed = allocate(RAW_BYTES_MAX),
                 file = allocate(ZSTD_compressBound(RAW_BYTES_MAX) + 64);
    unsigned char *live = malloc(RAW_BYTES_MAX);
    struct counts counts = {0, 0, 0, 0};
    int descriptor = mkstemp(name);
    if (!live || descriptor < 0)
        stop("out of memory or no place for a temporary");
    close(descriptor);

    write_file(name, original.at, original.length);
    read_trace(name, live, &counts);
    if (counts.good != 1)
        stop("the unchanged trace is not good");
    for (unsigned long round = 0; round < rounds; round++) {
        state = (seed + round) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        size_t changes = below(CHANGES_MAX) + 1;
        if (round % 4 == 0) { /* the file's own bytes: magic, frame, packed blocks */
            copy(&file, &original);
            while (changes--)
                change(&file);
        } else {
            copy(&changed, &raw);
            while (changes--)
                change(&changed);
            pack(&changed, &file);
        }
        write_file(name, file.at, file.length);
        read_trace(name, live, &counts);
    }
    unlink(name);
    printf("fuzz_trace: %lu changed traces from seed %lu: %" PRIu64 " still good, %" PRIu64
           " cut short, %" PRIu64 " rejected, %" PRIu64 " not opened\n",
           rounds, seed, counts.good - 1, counts.cut_short, counts.rejected, counts.not_opened);
    /* Each outcome must come up, or the changes reach too little. */
    if (rounds >= 1500 &&
        (counts.good < 2 || !counts.cut_short || !counts.rejected || !counts.not_opened))
        stop("an outcome never came up");
    free(original.at);
    free(raw.at);
    free(changed.at);
    free(file.at);
    free(live);
    return EXIT_SUCCESS;
}
