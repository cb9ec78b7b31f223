/* replay_report.h - all results of a replay, and the forms in which they are given out.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REPLAY_REPORT_H
#define SLATE_REPLAY_REPORT_H

#include "replay_list.h"
#include "replay_words.h"

#include <stdio.h>

struct replay_report {
    const struct replay_list *allocators;
    size_t base; /* index of the allocator that ratios are taken against */
    int runs;
    size_t trace_count;
    char **trace_names;
    bool *failed;                  /* [trace][allocator] */
    struct replay_result *results; /* [trace][allocator][run] */
    char **versions;               /* [allocator] */
};

static inline bool *replay_failed(const struct replay_report *report, size_t trace,
                                  size_t allocator)
{
    return &report->failed[trace * report->allocators->count + allocator];
}

static inline struct replay_result *replay_runs(const struct replay_report *report, size_t trace,
                                                size_t allocator)
{
    return &report->results[(trace * report->allocators->count + allocator) * (size_t)report->runs];
}

/* The tables of one trace, and the summary over all of them; at most 100 columns wide. */
void replay_print_trace(const struct replay_report *report, size_t trace, FILE *out);
void replay_print_summary(const struct replay_report *report, FILE *out);

/* One table of all traces and allocators, and the summary. */
void replay_print_all(const struct replay_report *report, FILE *out);

/* Writes the results as JSON at `path`.  Returns 0; or -1 after a complaint, and nothing is written
 * then. */
int replay_write_json(const struct replay_report *report, const char *path);

#endif
