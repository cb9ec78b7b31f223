/* trace.h - reading of recorded allocation traces (SLT1 files), for programs; libslate itself does
 * not use it.
 *
 * SPDX-License-Identifier: MIT
 *
 * A reader belongs to one thread at a time.  It uses malloc.
 */
#ifndef SLATE_TRACE_H
#define SLATE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The records' tags, as they stand in the file. */
enum slate_trace_tag {
    SLATE_TRACE_END = 0,
    SLATE_TRACE_MALLOC = 1,
    SLATE_TRACE_CALLOC = 2,
    SLATE_TRACE_REALLOC = 3,
    SLATE_TRACE_FREE = 4,
    SLATE_TRACE_ALIGNED = 5,
    SLATE_TRACE_THREAD = 6,
    SLATE_TRACE_MARK = 7,
    SLATE_TRACE_TIME = 8
};

#define SLATE_TRACE_MAGIC "SLTRACE\1"
#define SLATE_TRACE_MAGIC_LENGTH 8
#define SLATE_TRACE_SIZE_MAX ((uint64_t)1 << 47)
#define SLATE_TRACE_LOG2_ALIGNMENT_MAX 30
#define SLATE_TRACE_THREAD_MAX 65535

struct slate_trace_record {
    enum slate_trace_tag tag;
    uint32_t thread;         /* the thread that issued it */
    uint32_t log2_alignment; /* ALIGNED */
    uint64_t number;         /* counted from 1 over all records of the file */
    uint64_t size;           /* MALLOC, CALLOC, REALLOC, ALIGNED: bytes asked for */
    uint64_t object;         /* the object that it makes */
    uint64_t ended;          /* REALLOC, FREE: the object that it ends */
    uint64_t microseconds;   /* TIME */
    const char *text;        /* MARK: not terminated, valid until the next call */
    size_t text_length;      /* MARK; what is behind the first MiB of a text is left out */
};

struct slate_trace_reader;

/* Opens the trace at `path`.  The caller ends the reader with slate_trace_close whatever the
 * result. Returns 0; or -1: slate_trace_message says why (also for a NULL reader, when memory ran
 * out). */
int slate_trace_open(struct slate_trace_reader **reader, const char *path);

/* Reads the next record; the end-of-trace record is not given.
 * Returns 1 and fills `record`; 0 at the end of the trace; -1 for a malformed one, and then
 * slate_trace_message says what is wrong, with file name and record number. */
int slate_trace_next(struct slate_trace_reader *reader, struct slate_trace_record *record);

/* Whether the trace ended without its end-of-trace record (its process was killed); known when
 * slate_trace_next has returned 0.  All that was read of it is good. */
bool slate_trace_cut_short(const struct slate_trace_reader *reader);

/* The reader's path, the number of records and of objects read so far, bytes of records unpacked so
 * far. */
const char *slate_trace_path(const struct slate_trace_reader *reader);
uint64_t slate_trace_records(const struct slate_trace_reader *reader);
uint64_t slate_trace_objects(const struct slate_trace_reader *reader);
uint64_t slate_trace_raw_bytes(const struct slate_trace_reader *reader);

/* One line without newline that says what went wrong; valid until slate_trace_close. */
const char *slate_trace_message(const struct slate_trace_reader *reader);

void slate_trace_close(struct slate_trace_reader *reader);

#endif
