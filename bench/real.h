/* real.h - what the files of `slate real` share.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REAL_H
#define SLATE_REAL_H

#include "replay_list.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* ---- programs ---- */

struct real_program {
    char *name;
    char *check;     /* what must come out the same: "-", "stdout", or a file */
    char *directory; /* where it runs; NULL: here */
    char **settings; /* NAME=VALUE for its environment, ends with NULL */
    char **command;  /* ends with NULL */
    char *line;      /* what the pointers above point into */
    char **words;    /* the array that they are parts of */
};

struct real_programs {
    struct real_program *items;
    size_t count;
};

/* Reads the programs' file: a line a program, its fields separated by tabs: name, check, directory,
 * then the words of the command, with NAME=VALUE for its environment before it.  Empty lines and
 * those that begin with # are skipped.  Returns 0; or -1 with one line in `message`. */
int real_read_programs(const char *path, struct real_programs *programs, char *message,
                       size_t room);
/* One program, from the command line; `command` stays the caller's. */
int real_one_program(char **command, struct real_programs *programs);
void real_free_programs(struct real_programs *programs);

/* ---- runs ---- */

struct real_result {
    double wall_seconds, user_seconds, system_seconds;
    uint64_t resident_kb; /* the peak of the largest process of the tree */
    uint64_t minor_faults, major_faults;
    uint64_t sum; /* of what must come out the same */
};

/* Runs `program` once on `allocator`, at most `seconds` long.  Returns 0; or -1 with what was wrong
 * in `what`. */
int real_run(const struct real_program *program, const struct replay_allocator *allocator,
             long seconds, struct real_result *result, char *what, size_t room);

/* ---- results ---- */

struct real_report {
    const struct replay_list *allocators;
    const struct real_programs *programs;
    char **versions; /* of each allocator */
    int runs;
    size_t base;                 /* index of the allocator that ratios are taken against */
    bool *failed;                /* [program][allocator] */
    struct real_result *results; /* [program][allocator][run] */
};

static inline bool *real_failed(const struct real_report *report, size_t program, size_t allocator)
{
    return &report->failed[program * report->allocators->count + allocator];
}

static inline struct real_result *real_runs(const struct real_report *report, size_t program,
                                            size_t allocator)
{
    return &report
                ->results[(program * report->allocators->count + allocator) * (size_t)report->runs];
}

void real_print_program(const struct real_report *report, size_t program, FILE *out);
/* Means over all programs. */
void real_print_summary(const struct real_report *report, FILE *out);
json_t *real_json(const struct real_report *report);

#endif
