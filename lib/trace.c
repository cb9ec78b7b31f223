/* trace.c - reads recorded allocation traces (SLT1 files): unpacks, decodes, and rejects what is
 * malformed.
 *
 * SPDX-License-Identifier: MIT
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum {
    INPUT_BYTES = 128 << 10,
    OUTPUT_BYTES = 512 << 10,
    VARINT_BYTES_MAX = 10,
    RECORD_BYTES_MAX =
        1 + 2 * (VARINT_BYTES_MAX + 1), /* longer than any record but a mark's text */
    TEXT_BYTES_MAX = 1 << 20,
    WINDOW_LOG_MAX = 31
};

struct slate_trace_reader {
    const unsigned char *at;  /* next byte of `output` */
    const unsigned char *end; /* behind its last byte */
    uint64_t records;
    uint64_t objects;
    uint64_t *ended; /* a bit an object */
    uint64_t ended_words;
    uint32_t thread;
    bool cut_short;
    bool finished;    /* the end was reached or an error was reported */
    bool input_ended; /* nothing more comes out of the stream */
    int failed;       /* the result of every later call */
    int file;
    uint64_t raw_bytes;
    char *path;
    ZSTD_DStream *stream;
    ZSTD_inBuffer input_state;
    unsigned char *input;
    unsigned char *output;
    char *text;
    size_t text_room;
    char message[512];
};

__attribute__((format(printf, 2, 3))) static int fail(struct slate_trace_reader *reader,
                                                      const char *format, ...)
{
    va_list arguments;
    int used = snprintf(reader->message, sizeof reader->message, "%.300s: ", reader->path);
    va_start(arguments, format);
    vsnprintf(reader->message + used, sizeof reader->message - (size_t)used, format, arguments);
    va_end(arguments);
    reader->finished = true;
    reader->failed = -1;
    return -1;
}

/* Like fail, for a fault of the record being read. */
__attribute__((format(printf, 2, 3))) static int fail_record(struct slate_trace_reader *reader,
                                                             const char *format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fail(reader, "record %" PRIu64 ": %s", reader->records + 1, what);
}

static ssize_t read_some(int file, void *into, size_t length)
{
    ssize_t got;
    do {
        got = read(file, into, length);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Unpacks some more behind what is left.  Returns 0 (input_ended may be set), or -1 after an error.
 */
static int unpack(struct slate_trace_reader *reader)
{
    size_t left = (size_t)(reader->end - reader->at);
    memmove(reader->output, reader->at, left);
    reader->at = reader->output;
    ZSTD_outBuffer out = {reader->output, OUTPUT_BYTES, left};
    while (out.pos < out.size && !reader->input_ended) {
        size_t before = out.pos;
        if (reader->input_state.pos == reader->input_state.size) {
            ssize_t got = read_some(reader->file, reader->input, INPUT_BYTES);
            if (got < 0)
                return fail(reader, "cannot be read: %s", strerror(errno));
            reader->input_state.pos = 0;
            reader->input_state.size = (size_t)got;
        }
        bool no_input = reader->input_state.size == 0;
        size_t result = ZSTD_decompressStream(reader->stream, &out, &reader->input_state);
        if (ZSTD_isError(result)) {
            reader->end = reader->output + out.pos;
            return fail_record(reader, "the zstd stream is damaged: %s", ZSTD_getErrorName(result));
        }
        reader->raw_bytes += out.pos - before;
        if (result == 0 || (no_input && out.pos == before))
            reader->input_ended = true;
    }
    reader->end = reader->output + out.pos;
    return 0;
}

/* Sees to it that `length` bytes can be read.  Returns 1; 0 when the stream ends before; -1 after
 * an error. */
static int have(struct slate_trace_reader *reader, size_t length)
{
    while ((size_t)(reader->end - reader->at) < length) {
        if (reader->input_ended)
            return 0;
        if (unpack(reader) < 0)
            return -1;
    }
    return 1;
}

static int end_cut_short(struct slate_trace_reader *reader)
{
    reader->cut_short = true;
    reader->finished = true;
    return 0;
}

/* Reads one varint.  Returns 1; 0 when the stream ends inside it; -1 after an error. */
static inline int read_varint(struct slate_trace_reader *reader, uint64_t *value)
{
    const unsigned char *at = reader->at;
    uint64_t result = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX; i++) {
        if (at == reader->end)
            return 0;
        unsigned char byte = *at++;
        result |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            if (i == VARINT_BYTES_MAX - 1 && byte > 1)
                return fail_record(reader, "a number does not fit 64 bits");
            reader->at = at;
            *value = result;
            return 1;
        }
    }
    return fail_record(reader, "a number is longer than %d bytes", VARINT_BYTES_MAX);
}

static int read_size(struct slate_trace_reader *reader, uint64_t *size)
{
    int result = read_varint(reader, size);
    if (result == 1 && *size > SLATE_TRACE_SIZE_MAX)
        return fail_record(reader, "size %" PRIu64 " is above 2^47", *size);
    return result;
}

static inline bool has_ended(const struct slate_trace_reader *reader, uint64_t object)
{
    return reader->ended[object / 64] >> (object % 64) & 1;
}

/* Reads a reference to a live object. */
static int read_reference(struct slate_trace_reader *reader, uint64_t *object)
{
    uint64_t reference = 0;
    int result = read_varint(reader, &reference);
    if (result != 1)
        return result;
    if (reference == 0)
        return fail_record(reader, "reference 0, allowed is 1 and up");
    if (reference > reader->objects)
        return fail_record(reader, "reference %" PRIu64 " points before object 0", reference);
    *object = reader->objects - reference;
    if (has_ended(reader, *object))
        return fail_record(reader, "object %" PRIu64 " has ended before", *object);
    return 1;
}

/* Gives the next object its number. */
static inline int make_object(struct slate_trace_reader *reader, uint64_t *object)
{
    if (reader->objects == reader->ended_words * 64) {
        uint64_t words = reader->ended_words ? reader->ended_words * 2 : 1024;
        uint64_t *ended = realloc(reader->ended, words * sizeof *ended);
        if (!ended)
            return fail_record(reader, "out of memory");
        memset(ended + reader->ended_words, 0, (words - reader->ended_words) * sizeof *ended);
        reader->ended = ended;
        reader->ended_words = words;
    }
    *object = reader->objects++;
    return 1;
}

static inline void end_object(struct slate_trace_reader *reader, uint64_t object)
{
    reader->ended[object / 64] |= (uint64_t)1 << (object % 64);
}

static int read_text(struct slate_trace_reader *reader, struct slate_trace_record *record)
{
    uint64_t left = 0;
    int result = read_varint(reader, &left);
    if (result != 1)
        return result;
    size_t kept = 0;
    while (left > 0) {
        result = have(reader, 1);
        if (result != 1)
            return result;
        size_t piece = (size_t)(reader->end - reader->at);
        if (piece > left)
            piece = (size_t)left;
        size_t keep = piece < TEXT_BYTES_MAX - kept ? piece : TEXT_BYTES_MAX - kept;
        if (kept + keep > reader->text_room) {
            char *text = realloc(reader->text, kept + keep);
            if (!text)
                return fail_record(reader, "out of memory");
            reader->text = text;
            reader->text_room = kept + keep;
        }
        if (keep > 0)
            memcpy(reader->text + kept, reader->at, keep);
        kept += keep;
        reader->at += piece;
        left -= piece;
    }
    record->text = reader->text;
    record->text_length = kept;
    return 1;
}

/* Behind the end-of-trace record only the frame's own check sum can still be wrong. */
static int read_end(struct slate_trace_reader *reader)
{
    reader->raw_bytes -= (uint64_t)(reader->end - reader->at);
    uint64_t raw_bytes = reader->raw_bytes;
    while (!reader->input_ended) {
        reader->at = reader->end;
        if (unpack(reader) < 0)
            return -1;
    }
    reader->raw_bytes = raw_bytes;
    reader->finished = true;
    return 0;
}

/* Reads the fields behind `tag`.  Returns 1, 0 at the end or where the stream was cut, -1 after an
 * error. */
static inline int read_fields(struct slate_trace_reader *reader, unsigned tag,
                              struct slate_trace_record *record)
{
    uint64_t value = 0;
    int result;
    switch (tag) {
    case SLATE_TRACE_MALLOC:
    case SLATE_TRACE_CALLOC:
        result = read_size(reader, &record->size);
        return result == 1 ? make_object(reader, &record->object) : result;
    case SLATE_TRACE_REALLOC:
        if ((result = read_reference(reader, &record->ended)) != 1 ||
            (result = read_size(reader, &record->size)) != 1)
            return result;
        end_object(reader, record->ended);
        return make_object(reader, &record->object);
    case SLATE_TRACE_FREE:
        result = read_reference(reader, &record->ended);
        if (result == 1)
            end_object(reader, record->ended);
        return result;
    case SLATE_TRACE_ALIGNED:
        if ((result = read_varint(reader, &value)) != 1)
            return result;
        if (value > SLATE_TRACE_LOG2_ALIGNMENT_MAX)
            return fail_record(reader, "alignment 2^%" PRIu64 " is above 2^%d", value,
                               SLATE_TRACE_LOG2_ALIGNMENT_MAX);
        record->log2_alignment = (uint32_t)value;
        result = read_size(reader, &record->size);
        return result == 1 ? make_object(reader, &record->object) : result;
    case SLATE_TRACE_THREAD:
        if ((result = read_varint(reader, &value)) != 1)
            return result;
        if (value > SLATE_TRACE_THREAD_MAX)
            return fail_record(reader, "thread index %" PRIu64 " is above %d", value,
                               SLATE_TRACE_THREAD_MAX);
        reader->thread = (uint32_t)value;
        return 1;
    case SLATE_TRACE_MARK:
        return read_text(reader, record);
    case SLATE_TRACE_TIME:
        return read_varint(reader, &record->microseconds);
    default:
        return fail_record(reader, "unknown tag 0x%02x", tag);
    }
}

int slate_trace_next(struct slate_trace_reader *reader, struct slate_trace_record *record)
{
    if (reader->finished)
        return reader->failed;
    if ((size_t)(reader->end - reader->at) < RECORD_BYTES_MAX) {
        int result = have(reader, RECORD_BYTES_MAX);
        if (result < 0)
            return -1;
        if (reader->at == reader->end)
            return end_cut_short(reader);
    }
    unsigned tag = *reader->at++;
    if (tag == SLATE_TRACE_END)
        return read_end(reader);
    int result = read_fields(reader, tag, record);
    if (result < 0)
        return -1;
    if (result == 0)
        return end_cut_short(reader);
    record->tag = (enum slate_trace_tag)tag;
    record->thread = reader->thread;
    record->number = ++reader->records;
    return 1;
}

static int open_stream(struct slate_trace_reader *reader)
{
    char magic[SLATE_TRACE_MAGIC_LENGTH];
    reader->file = open(reader->path, O_RDONLY | O_CLOEXEC);
    if (reader->file < 0)
        return fail(reader, "cannot be opened: %s", strerror(errno));
    size_t length = 0;
    while (length < sizeof magic) {
        ssize_t got = read_some(reader->file, magic + length, sizeof magic - length);
        if (got < 0)
            return fail(reader, "cannot be read: %s", strerror(errno));
        if (got == 0)
            break;
        length += (size_t)got;
    }
    if (length < sizeof magic || memcmp(magic, SLATE_TRACE_MAGIC, sizeof magic) != 0)
        return fail(reader, "record 0: not a trace: it does not begin with \"SLTRACE\" and 1");
    reader->input = malloc(INPUT_BYTES);
    reader->output = malloc(OUTPUT_BYTES);
    reader->stream = ZSTD_createDStream();
    if (!reader->input || !reader->output || !reader->stream)
        return fail(reader, "out of memory");
    ZSTD_DCtx_setParameter(reader->stream, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    reader->input_state.src = reader->input;
    reader->at = reader->end = reader->output;
    return 0;
}

int slate_trace_open(struct slate_trace_reader **result, const char *path)
{
    struct slate_trace_reader *reader = calloc(1, sizeof *reader);
    *result = reader;
    if (!reader)
        return -1;
    reader->file = -1;
    reader->path = strdup(path);
    if (!reader->path) {
        slate_trace_close(reader);
        *result = NULL;
        return -1;
    }
    return open_stream(reader);
}

bool slate_trace_cut_short(const struct slate_trace_reader *reader) { return reader->cut_short; }

const char *slate_trace_path(const struct slate_trace_reader *reader) { return reader->path; }

uint64_t slate_trace_records(const struct slate_trace_reader *reader) { return reader->records; }

uint64_t slate_trace_objects(const struct slate_trace_reader *reader) { return reader->objects; }

uint64_t slate_trace_raw_bytes(const struct slate_trace_reader *reader)
{
    return reader->raw_bytes;
}

const char *slate_trace_message(const struct slate_trace_reader *reader)
{
    return reader ? reader->message : "out of memory";
}

void slate_trace_close(struct slate_trace_reader *reader)
{
    if (!reader)
        return;
    if (reader->file >= 0)
        close(reader->file);
    ZSTD_freeDStream(reader->stream);
    free(reader->input);
    free(reader->output);
    free(reader->ended);
    free(reader->text);
    free(reader->path);
    free(reader);
}
