/* replay_encode.h - decodes a trace once into the form that the replaying children read.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REPLAY_ENCODE_H
#define SLATE_REPLAY_ENCODE_H

#include "replay_words.h"

#include <stdbool.h>
#include <stddef.h>

struct replay_trace {
    int file; /* of the shared mapping */
    uint64_t *words;
    size_t bytes;
    const struct replay_header *header;
    bool as_regions;
};

/* Decodes the trace at `path`; with `as_regions` so that all objects that were made between two
 * marks end together at the second one, whatever the trace says: its frees only look at them, and
 * a realloc of one of an earlier phase makes a new one.  All is one thread's then.  Returns 0; or
 * -1 with one line (no newline) in `message`.  A trace that was cut short is used as far as it
 * goes, header->cut_short says so. */
int replay_encode(const char *path, bool as_regions, struct replay_trace *trace, char *message,
                  size_t message_size);
void replay_trace_close(struct replay_trace *trace);

/* The number of the record whose operation is at `word` of the decoded trace; 0 if there is none.
 */
uint64_t replay_record_at(const char *path, bool as_regions, uint64_t word);

#endif
