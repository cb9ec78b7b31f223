/* replay_encode.c - decodes a trace once into words in a shared file mapping, one stream a trace
 * thread.
 *
 * SPDX-License-Identifier: MIT
 *
 * Slots are reused as objects end, which keeps the replay's own table small and dense.  Two
 * exceptions: each thread reuses its own slots only (threads run freely, so another thread's object
 * may still be there), and an object that another thread ends has a slot that nobody else ever
 * gets.
 */
#define _GNU_SOURCE 1
#include "replay_encode.h"

#include "../lib/trace.h"
#include "array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the second pass can say besides 0 and -1. */
enum { FOUND_RECORD = 1, SEVERAL_THREADS = 2 };

enum {
    SLOT_GROUP = 64,         /* slots handed to a thread together: no cache line is two threads' */
    PIECE_WORDS_FIRST = 512, /* a stream's first piece; each next is twice as long, up to: */
    PIECE_WORDS_MAX = 128 << 10
};
#define NO_RECORD UINT64_MAX

struct slot {
    uint64_t size;
    uint64_t seed;
    uint32_t next_free;
    uint32_t phase; /* in which its object was made */
    bool shared;
};

struct stream {
    bool known;
    uint64_t first_word; /* 0: no piece yet */
    uint64_t at, piece_end;
    uint64_t piece_words;
    uint64_t first_record, last_record; /* indices among the allocation calls; NO_RECORD */
    uint64_t latest_record;             /* while encoding: the last one encoded */
    uint32_t free_slot;                 /* list through slot.next_free */
    uint32_t group_next, group_end;     /* rest of the group of slots */
    uint32_t ended_before;
};

struct encoder {
    const char *path;
    struct slate_trace_reader *reader;
    char *message;
    size_t message_size;
    int file;
    uint64_t *words;
    uint64_t room, used;
    struct stream *streams; /* SLATE_TRACE_THREAD_MAX + 1 */
    uint32_t thread_count;
    uint32_t *started, started_count;   /* threads in the order in which they begin */
    uint32_t *ended_order, ended_count; /* threads in the order in which they end */
    uint32_t *slot_of;                  /* an object's slot */
    uint64_t slot_of_room;
    struct slot *slots; /* slot 0 is never used */
    uint64_t slots_room, slots_used;
    uint64_t *shared; /* a bit an object: another thread ends it */
    uint64_t shared_words;
    uint16_t *owner; /* an object's thread, in the first pass */
    uint64_t owner_room;
    uint64_t events, live_bytes, peak_live_bytes;
    uint64_t wanted_word, wanted_record;
    bool surveyed;
    bool as_regions;
    uint32_t phase;       /* the present one */
    bool phase_has_calls; /* something was made in it */
};

static int fail(struct encoder *encoder, const char *what)
{
    snprintf(encoder->message, encoder->message_size, "%s: %s", encoder->path, what);
    return -1;
}

static int fail_read(struct encoder *encoder)
{
    snprintf(encoder->message, encoder->message_size, "%s", slate_trace_message(encoder->reader));
    return -1;
}

static int grow_words(struct encoder *encoder, uint64_t wanted)
{
    if (wanted <= encoder->room)
        return 0;
    uint64_t room = encoder->room;
    while (room < wanted)
        room = room ? room * 2 : 128 << 10;
    if (ftruncate(encoder->file, (off_t)(room * sizeof(uint64_t))) < 0)
        return -1;
    void *words = encoder->words ? mremap(encoder->words, encoder->room * sizeof(uint64_t),
                                          room * sizeof(uint64_t), MREMAP_MAYMOVE)
                                 : mmap(NULL, room * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                                        MAP_SHARED, encoder->file, 0);
    if (words == MAP_FAILED)
        return -1;
    encoder->words = words;
    encoder->room = room;
    return 0;
}

/* ---- streams ---- */

/* Makes room for one operation, in a new piece of the stream when the old one is full. */
static int reserve_words(struct encoder *encoder, struct stream *stream)
{
    const uint64_t jump_words = 2;
    if (stream->first_word && stream->at + SPECIAL_WORDS_MAX + jump_words <= stream->piece_end)
        return 0;
    uint64_t length = stream->piece_words ? stream->piece_words * 2 : PIECE_WORDS_FIRST;
    if (length > PIECE_WORDS_MAX)
        length = PIECE_WORDS_MAX;
    stream->piece_words = length;
    uint64_t start = encoder->used;
    if (grow_words(encoder, start + length) < 0)
        return -1;
    encoder->used = start + length;
    if (!stream->first_word) {
        stream->first_word = start;
    } else if (start == stream->piece_end) {
        stream->piece_end += length; /* the two pieces touch: no jump needed */
        return 0;
    } else {
        encoder->words[stream->at] = WORD_SPECIAL | SPECIAL_JUMP << SPECIAL_KIND_SHIFT;
        encoder->words[stream->at + 1] = start;
    }
    stream->at = start;
    stream->piece_end = start + length;
    return 0;
}

static void put(struct encoder *encoder, struct stream *stream, uint64_t word)
{
    encoder->words[stream->at++] = word;
}

static void put_special(struct encoder *encoder, struct stream *stream, unsigned kind,
                        unsigned log2_alignment)
{
    put(encoder, stream,
        WORD_SPECIAL | (uint64_t)kind << SPECIAL_KIND_SHIFT |
            (uint64_t)log2_alignment << SPECIAL_ALIGNMENT_SHIFT);
}

static void put_block(struct encoder *encoder, struct stream *stream, uint32_t slot)
{
    const struct slot *of = &encoder->slots[slot];
    put(encoder, stream, slot | of->seed << BLOCK_SEED_SHIFT | (of->shared ? BLOCK_SHARED : 0));
    put(encoder, stream, of->size);
}

static bool is_narrow(const struct encoder *encoder, uint32_t slot)
{
    const struct slot *of = &encoder->slots[slot];
    return !of->shared && of->size < WORD_SIZE_LIMIT && slot < WORD_SLOT_LIMIT;
}

static void put_narrow(struct encoder *encoder, struct stream *stream, unsigned operation,
                       uint32_t slot)
{
    const struct slot *of = &encoder->slots[slot];
    put(encoder, stream,
        operation | of->size << WORD_SIZE_SHIFT | of->seed << WORD_SEED_SHIFT |
            (uint64_t)slot << WORD_SLOT_SHIFT);
}

/* ---- slots ---- */

static bool is_shared(const struct encoder *encoder, uint64_t object)
{
    return object / 64 < encoder->shared_words && encoder->shared[object / 64] >> object % 64 & 1;
}

/* Returns a slot for a new object, or 0 when memory ran out. */
static uint32_t take_slot(struct encoder *encoder, struct stream *stream, bool shared)
{
    if (!shared && stream->free_slot) {
        uint32_t slot = stream->free_slot;
        stream->free_slot = encoder->slots[slot].next_free;
        return slot;
    }
    if (!shared && stream->group_next < stream->group_end)
        return stream->group_next++;
    uint64_t slot = encoder->slots_used ? encoder->slots_used : SLOT_GROUP;
    uint64_t count = shared ? 1 : SLOT_GROUP - slot % SLOT_GROUP;
    if (slot + count >= UINT32_MAX ||
        array_grow(&encoder->slots, &encoder->slots_room, slot + count, sizeof(struct slot)) < 0)
        return 0;
    encoder->slots_used = slot + count;
    if (!shared) {
        stream->group_next = (uint32_t)slot + 1;
        stream->group_end = (uint32_t)(slot + count);
    }
    return (uint32_t)slot;
}

static uint32_t begin_object(struct encoder *encoder, struct stream *stream,
                             const struct slate_trace_record *record)
{
    bool shared = is_shared(encoder, record->object);
    uint32_t slot = take_slot(encoder, stream, shared);
    if (!slot || array_grow(&encoder->slot_of, &encoder->slot_of_room, record->object + 1,
                            sizeof(uint32_t)) < 0)
        return 0;
    encoder->slot_of[record->object] = slot;
    encoder->slots[slot] = (struct slot){.size = record->size,
                                         .seed = (record->object + 1) & WORD_SEED_MASK,
                                         .phase = encoder->phase,
                                         .shared = shared};
    encoder->phase_has_calls = true;
    encoder->live_bytes += record->size;
    if (encoder->live_bytes > encoder->peak_live_bytes)
        encoder->peak_live_bytes = encoder->live_bytes;
    return slot;
}

static void end_object(struct encoder *encoder, struct stream *stream, uint32_t slot)
{
    if (!encoder->as_regions)
        encoder->live_bytes -= encoder->slots[slot].size;
    if (encoder->slots[slot].shared)
        return;
    encoder->slots[slot].next_free = stream->free_slot;
    stream->free_slot = slot;
}

/* ---- first pass, for traces of several threads only ---- */

static bool is_allocation_call(const struct slate_trace_record *record)
{
    return record->tag >= SLATE_TRACE_MALLOC && record->tag <= SLATE_TRACE_ALIGNED;
}

static bool makes_object(const struct slate_trace_record *record)
{
    return is_allocation_call(record) && record->tag != SLATE_TRACE_FREE;
}

static bool ends_object(const struct slate_trace_record *record)
{
    return record->tag == SLATE_TRACE_FREE || record->tag == SLATE_TRACE_REALLOC;
}

static int survey_record(struct encoder *encoder, const struct slate_trace_record *record)
{
    struct stream *stream = &encoder->streams[record->thread];
    if (!stream->known) {
        stream->known = true;
        stream->first_record = encoder->events;
        encoder->started[encoder->started_count++] = record->thread;
    }
    stream->last_record = encoder->events++;
    if (ends_object(record) && encoder->owner[record->ended] != record->thread) {
        if (array_grow(&encoder->shared, &encoder->shared_words, record->ended / 64 + 1,
                       sizeof(uint64_t)) < 0)
            return fail(encoder, "out of memory");
        encoder->shared[record->ended / 64] |= (uint64_t)1 << record->ended % 64;
    }
    if (makes_object(record)) {
        if (array_grow(&encoder->owner, &encoder->owner_room, record->object + 1,
                       sizeof(uint16_t)) < 0)
            return fail(encoder, "out of memory");
        encoder->owner[record->object] = (uint16_t)record->thread;
    }
    return 0;
}

static const struct stream *sorted_streams; /* qsort has no argument for it */

static int compare_ends(const void *left, const void *right)
{
    uint64_t a = sorted_streams[*(const uint32_t *)left].last_record;
    uint64_t b = sorted_streams[*(const uint32_t *)right].last_record;
    return a < b ? -1 : a > b;
}

/* Threads by their ends, and for each how many of them have ended before it begins. */
static void order_threads(struct encoder *encoder)
{
    for (uint32_t i = 0; i < encoder->started_count; i++)
        if (encoder->started[i] != 0)
            encoder->ended_order[encoder->ended_count++] = encoder->started[i];
    sorted_streams = encoder->streams;
    qsort(encoder->ended_order, encoder->ended_count, sizeof(uint32_t), compare_ends);
    uint32_t ended = 0;
    for (uint32_t i = 0; i < encoder->started_count; i++) {
        struct stream *stream = &encoder->streams[encoder->started[i]];
        while (ended < encoder->ended_count &&
               encoder->streams[encoder->ended_order[ended]].last_record < stream->first_record)
            ended++;
        stream->ended_before = ended;
    }
}

/* Opens the trace and reads it with `handle` for each record.  Returns 0, or what `handle` gave if
 * not 0, or -1. */
static int read_trace(struct encoder *encoder,
                      int (*handle)(struct encoder *, const struct slate_trace_record *))
{
    struct slate_trace_record record;
    slate_trace_close(encoder->reader);
    if (slate_trace_open(&encoder->reader, encoder->path) < 0)
        return fail_read(encoder);
    int result;
    while ((result = slate_trace_next(encoder->reader, &record)) == 1) {
        if (!is_allocation_call(&record) &&
            !(encoder->as_regions && record.tag == SLATE_TRACE_MARK))
            continue;
        int handled = handle(encoder, &record);
        if (handled != 0)
            return handled;
    }
    return result < 0 ? fail_read(encoder) : 0;
}

/* ---- second pass ---- */

/* A thread is started by the thread whose call precedes its first one, among those that still have
 * calls to come: a thread that ends there is to be joined first, so that the new one finds its
 * arena. */
static int put_start(struct encoder *encoder, uint32_t thread, uint64_t event)
{
    struct stream *starter = &encoder->streams[0];
    for (uint32_t i = 0; i < encoder->started_count; i++) {
        struct stream *other = &encoder->streams[encoder->started[i]];
        if (other->latest_record == NO_RECORD || other->last_record < event)
            continue;
        if (starter->latest_record == NO_RECORD || other->latest_record > starter->latest_record)
            starter = other;
    }
    if (reserve_words(encoder, starter) < 0)
        return -1;
    put_special(encoder, starter, SPECIAL_START, 0);
    put(encoder, starter, thread);
    return 0;
}

static int put_record(struct encoder *encoder, struct stream *stream,
                      const struct slate_trace_record *record)
{
    static const unsigned char operation[] = {[SLATE_TRACE_MALLOC] = WORD_MALLOC,
                                              [SLATE_TRACE_CALLOC] = WORD_CALLOC,
                                              [SLATE_TRACE_REALLOC] = WORD_REALLOC,
                                              [SLATE_TRACE_FREE] = WORD_FREE,
                                              [SLATE_TRACE_ALIGNED] = WORD_SPECIAL};
    static const unsigned char special[] = {[SLATE_TRACE_MALLOC] = SPECIAL_MALLOC,
                                            [SLATE_TRACE_CALLOC] = SPECIAL_CALLOC,
                                            [SLATE_TRACE_REALLOC] = SPECIAL_REALLOC,
                                            [SLATE_TRACE_FREE] = SPECIAL_FREE,
                                            [SLATE_TRACE_ALIGNED] = SPECIAL_ALIGNED};
    uint32_t old = ends_object(record) ? encoder->slot_of[record->ended] : 0;
    uint32_t new = 0;
    if (makes_object(record) && !(new = begin_object(encoder, stream, record)))
        return -1;
    bool narrow = record->tag != SLATE_TRACE_ALIGNED && (!old || is_narrow(encoder, old)) &&
                  (!new || is_narrow(encoder, new));
    if (narrow) {
        put_narrow(encoder, stream, operation[record->tag], old ? old : new);
        if (old && new)
            put_narrow(encoder, stream, 0, new);
    } else {
        put_special(encoder, stream, special[record->tag],
                    record->tag == SLATE_TRACE_ALIGNED ? record->log2_alignment : 0);
        if (old)
            put_block(encoder, stream, old);
        if (new)
            put_block(encoder, stream, new);
    }
    if (old)
        end_object(encoder, stream, old);
    return 0;
}

/* The end of a phase, which a mark is: nothing when the phase made nothing. */
static int end_phase(struct encoder *encoder)
{
    struct stream *stream = &encoder->streams[0];
    if (!encoder->phase_has_calls)
        return 0;
    if (reserve_words(encoder, stream) < 0)
        return fail(encoder, strerror(errno));
    put_special(encoder, stream, SPECIAL_PHASE, 0);
    encoder->phase++;
    encoder->phase_has_calls = false;
    encoder->live_bytes = 0;
    return 0;
}

static int encode_record(struct encoder *encoder, const struct slate_trace_record *record);

/* One record of a trace that is replayed as regions. */
static int encode_in_region(struct encoder *encoder, const struct slate_trace_record *record)
{
    struct slate_trace_record changed = *record;
    if (record->tag == SLATE_TRACE_MARK)
        return end_phase(encoder);
    changed.thread = 0;
    if (ends_object(record)) {
        uint32_t old = encoder->slot_of[record->ended];
        if (encoder->slots[old].phase != encoder->phase) {
            /* It is gone already. */
            end_object(encoder, &encoder->streams[0], old);
            encoder->events += record->tag == SLATE_TRACE_FREE;
            if (record->tag == SLATE_TRACE_FREE)
                return 0;
            changed.tag = SLATE_TRACE_MALLOC;
        }
    }
    return encode_record(encoder, &changed);
}

static int encode_record(struct encoder *encoder, const struct slate_trace_record *record)
{
    if (record->thread != 0 && !encoder->surveyed)
        return SEVERAL_THREADS;
    struct stream *stream = &encoder->streams[record->thread];
    uint64_t event = encoder->events++;
    if (record->thread != 0 && stream->latest_record == NO_RECORD &&
        put_start(encoder, record->thread, event) < 0)
        return fail(encoder, strerror(errno));
    stream->latest_record = event;
    if (reserve_words(encoder, stream) < 0)
        return fail(encoder, strerror(errno));
    uint64_t at = stream->at;
    if (put_record(encoder, stream, record) < 0)
        return fail(encoder, "out of memory");
    if (encoder->wanted_word >= at && encoder->wanted_word < stream->at) {
        encoder->wanted_record = record->number;
        return FOUND_RECORD;
    }
    return 0;
}

static int prepare(struct encoder *encoder)
{
    size_t threads = SLATE_TRACE_THREAD_MAX + 1;
    encoder->streams = calloc(threads, sizeof *encoder->streams);
    encoder->started = calloc(threads, sizeof *encoder->started);
    encoder->ended_order = calloc(threads, sizeof *encoder->ended_order);
    if (!encoder->streams || !encoder->started || !encoder->ended_order)
        return fail(encoder, "out of memory");
    for (size_t i = 0; i < threads; i++)
        encoder->streams[i].latest_record = NO_RECORD;
    encoder->file = memfd_create("slate-replay", MFD_CLOEXEC);
    encoder->used = (sizeof(struct replay_header) + 7) / 8;
    if (encoder->file < 0 || grow_words(encoder, encoder->used) < 0)
        return fail(encoder, strerror(errno));
    return 0;
}

static int finish(struct encoder *encoder)
{
    uint32_t threads = 1;
    for (uint32_t i = 0; i < encoder->started_count; i++)
        if (encoder->started[i] + 1 > threads)
            threads = encoder->started[i] + 1;
    for (uint32_t i = 0; i < threads; i++) {
        struct stream *stream = &encoder->streams[i];
        if (reserve_words(encoder, stream) < 0)
            return fail(encoder, strerror(errno));
        put_special(encoder, stream, SPECIAL_END, 0);
    }
    uint64_t table = encoder->used;
    uint64_t table_words = threads * (sizeof(struct replay_thread_entry) / sizeof(uint64_t));
    if (grow_words(encoder, table + table_words) < 0)
        return fail(encoder, strerror(errno));
    encoder->used += table_words;
    struct replay_thread_entry *entries = (struct replay_thread_entry *)(encoder->words + table);
    for (uint32_t i = 0; i < threads; i++)
        entries[i] = (struct replay_thread_entry){
            .first_word = encoder->streams[i].first_word,
            .ended_before = encoder->streams[i].ended_before,
            .ended_order = i < encoder->ended_count ? encoder->ended_order[i] : 0};
    *(struct replay_header *)encoder->words =
        (struct replay_header){.total_words = encoder->used,
                               .thread_table = table,
                               .slot_count = encoder->slots_used ? encoder->slots_used : 1,
                               .events = encoder->events,
                               .objects = slate_trace_objects(encoder->reader),
                               .peak_live_bytes = encoder->peak_live_bytes,
                               .thread_count = threads,
                               .cut_short = slate_trace_cut_short(encoder->reader)};
    return 0;
}

static void unmap(int file, uint64_t *words, size_t bytes)
{
    if (words)
        munmap(words, bytes);
    if (file >= 0)
        close(file);
}

static void release(struct encoder *encoder)
{
    slate_trace_close(encoder->reader);
    free(encoder->streams);
    free(encoder->started);
    free(encoder->ended_order);
    free(encoder->slot_of);
    free(encoder->slots);
    free(encoder->shared);
    free(encoder->owner);
    unmap(encoder->file, encoder->words, encoder->room * sizeof(uint64_t));
}

/* Most traces have one thread: that is assumed first, and the survey made only when a second one
 * appears. */
static int encode(struct encoder *encoder)
{
    struct encoder fresh = *encoder;
    if (prepare(encoder) < 0)
        return -1;
    encoder->started_count = 1; /* thread 0 */
    int result = read_trace(encoder, encoder->as_regions ? encode_in_region : encode_record);
    if (result == SEVERAL_THREADS) {
        release(encoder);
        *encoder = fresh;
        if (prepare(encoder) < 0 || read_trace(encoder, survey_record) < 0)
            return -1;
        order_threads(encoder);
        encoder->surveyed = true;
        encoder->events = 0;
        result = read_trace(encoder, encode_record);
    }
    return result != 0 ? result : finish(encoder);
}

int replay_encode(const char *path, bool as_regions, struct replay_trace *trace, char *message,
                  size_t message_size)
{
    struct encoder encoder = {.path = path,
                              .message = message,
                              .message_size = message_size,
                              .as_regions = as_regions,
                              .file = -1,
                              .wanted_word = NO_RECORD};
    int result = encode(&encoder);
    if (result == 0) {
        *trace = (struct replay_trace){.file = encoder.file,
                                       .words = encoder.words,
                                       .bytes = encoder.room * sizeof(uint64_t),
                                       .as_regions = as_regions,
                                       .header = (const struct replay_header *)encoder.words};
        encoder.file = -1; /* the trace's from now on */
        encoder.words = NULL;
    }
    release(&encoder);
    return result == 0 ? 0 : -1;
}

void replay_trace_close(struct replay_trace *trace)
{
    unmap(trace->file, trace->words, trace->bytes);
}

uint64_t replay_record_at(const char *path, bool as_regions, uint64_t word)
{
    char message[512];
    struct encoder encoder = {.path = path,
                              .message = message,
                              .message_size = sizeof message,
                              .as_regions = as_regions,
                              .file = -1,
                              .wanted_word = word};
    encode(&encoder);
    release(&encoder);
    return encoder.wanted_record;
}
