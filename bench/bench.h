/* bench.h - what the small comparisons of `slate bench` share.
 *
 * SPDX-License-Identifier: MIT
 *
 * A comparison has cases; each (case, allocator) runs in a child of its own, several times, the
 * allocators taking turns.
 */
#ifndef SLATE_BENCH_H
#define SLATE_BENCH_H

#include "child.h"
#include "replay_list.h"

#include <jansson.h>
#include <stdio.h>

enum bench_status {
    BENCH_UNFINISHED,
    BENCH_DONE,
    BENCH_CHANGED,       /* a block's words were not what was written */
    BENCH_NOT_ZERO,      /* a block that was to be zero was not */
    BENCH_NO_MEMORY,     /* the allocator returned NULL */
    BENCH_NOT_PRELOADED, /* malloc is not the library's that was asked for */
    BENCH_SETUP_FAILED
};

/* What a child leaves behind in its result page. */
struct bench_result {
    int status; /* enum bench_status */
    int error;  /* errno of SETUP_FAILED */
    uint64_t address, size;
    uint64_t operations;
    double wall_seconds;  /* contention */
    double cpu_seconds;   /* of the operations alone (micro), of the process (contention) */
    uint64_t resident_kb; /* growth of the peak (contention) */
    uint64_t waits;       /* for slate's lock (contention) */
    uint64_t payload;     /* bytes in the buffer at the end (append) */
    uint64_t copied;      /* of them, by growth (append) */
    double last_seconds;  /* of the short append behind the others (append) */
    uint64_t held;        /* bytes of scratch in all idle threads (idle) */
    uint64_t idle_kb;     /* growth of resident memory when all are idle (idle) */
    uint64_t faults;      /* in the rounds (idle) */
    uint64_t asked;       /* bytes that the rounds took from the heap (idle) */
    char version[CHILD_VERSION_BYTES];
};

/* What a child is told. */
struct bench_settings {
    long milliseconds; /* micro: a loop's least time */
    long threads;      /* contention */
    long operations;   /* contention: of each thread */
};

struct bench_report {
    const struct replay_list *allocators;
    struct bench_settings settings;
    int runs;
    size_t *cases; /* indexes of those that were chosen */
    size_t case_count;
    bool *failed;                 /* [case][allocator] */
    struct bench_result *results; /* [case][allocator][run] */
    char **versions;              /* [allocator] */
};

/* One comparison. */
struct bench {
    const char *name;
    const char *options; /* letters of those it has beside the common ones */
    const char *help;
    const char *all;                        /* what --with all stands for; NULL: as most have it */
    struct bench_settings settings;         /* defaults; 0: as most have it */
    const char *(*case_name)(size_t index); /* NULL behind the last */
    const char *(*case_text)(size_t index); /* for the help; or NULL */
    bool warm_up;                           /* one run before those that count */
    void (*print)(const struct bench_report *report, FILE *out);
    json_t *(*json_run)(const struct bench_result *result);
    /* The child's part: runs case `index` on an allocator of that kind; fills in `result` but for
     * status and version. */
    void (*run)(size_t index, enum replay_kind kind, const struct bench_settings *settings,
                struct bench_result *result);
};

extern const struct bench bench_micro, bench_contention, bench_append, bench_idle;

/* The comparison of that name, or NULL. */
const struct bench *bench_find(const char *name);

/* In a child: ends it with `status`. */
_Noreturn void bench_fail(struct bench_result *result, int status, const void *block, size_t size);

static inline bool *bench_failed(const struct bench_report *report, size_t place, size_t allocator)
{
    return &report->failed[place * report->allocators->count + allocator];
}

static inline struct bench_result *bench_runs(const struct bench_report *report, size_t place,
                                              size_t allocator)
{
    return &report->results[(place * report->allocators->count + allocator) * (size_t)report->runs];
}

/* The median over the runs of (case, allocator) of what `value` takes from a result; NaN if it
 * failed. */
double bench_median(const struct bench_report *report, size_t place, size_t allocator,
                    double (*value)(const struct bench_result *));

/* The least median among the peers; NaN without one. */
double bench_best_peer(const struct bench_report *report, size_t place,
                       double (*value)(const struct bench_result *));

#endif
