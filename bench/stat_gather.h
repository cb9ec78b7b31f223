/* stat_gather.h - what `slate stat` finds out about a trace.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_STAT_GATHER_H
#define SLATE_STAT_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STAT_CLASS_COUNT = 32, /* steps of 16 bytes to 512 */
    STAT_CLASS_STEP = 16,
    STAT_TOP_SIZES = 20,
    STAT_CURVE_POINTS = 21,
    STAT_LIFETIMES = 65
};

enum stat_share { STAT_LE512, STAT_LE4096, STAT_LE32768, STAT_LARGER, STAT_SHARES };
enum stat_ratio { STAT_LT1_4, STAT_1_4_TO_1_9, STAT_1_9_TO_2_6, STAT_GE2_6, STAT_RATIOS };

struct stat_point {
    uint64_t event, bytes, objects;
};

struct stat_size {
    uint64_t size, count;
};

struct stat_mark {
    char *text;
    size_t length;
    uint64_t event, microseconds, live, total;
};

struct stat_trace {
    bool complete;
    uint64_t file_bytes, raw_bytes;
    uint64_t events;     /* allocation calls */
    uint64_t by_tag[16]; /* indexed by enum slate_trace_tag */
    uint64_t objects, total_bytes;
    uint32_t threads;
    uint64_t recorded_microseconds;
    uint64_t live_bytes, live_objects; /* at the end */
    uint64_t peak_live_bytes, peak_live_objects;
    uint64_t peak_event; /* index of the call that reached peak_live_bytes */
    uint64_t largest, zero_size;
    uint32_t max_log2_alignment;
    uint64_t share_bytes[STAT_SHARES], share_objects[STAT_SHARES];
    uint64_t cross_thread_frees, cross_thread_reallocs;
    uint64_t ended; /* objects, by free or realloc */
    uint64_t frees_of_newest, frees_of_newest_16;
    uint64_t carved[STAT_CLASS_COUNT]; /* peak number of live blocks */
    uint64_t carved_per_owner_thread;  /* bytes: the same for each thread's own blocks, summed */
    uint64_t grow, shrink, same, within_class;
    uint64_t realloc_old_bytes, realloc_new_bytes;
    uint64_t ratios[STAT_RATIOS];
    uint64_t lifetimes[STAT_LIFETIMES]; /* by log2 of the bytes allocated meanwhile */
    uint64_t *objects_by_thread;        /* [threads] */
    struct stat_size top_sizes[STAT_TOP_SIZES];
    size_t top_count;
    struct stat_point curve[STAT_CURVE_POINTS];
    size_t curve_count;
    struct stat_mark *marks;
    size_t mark_count;
};

/* Reads the trace at `path`.  Returns 0; or -1 with one line in `message`.  stat_release ends what
 * it made either way. */
int stat_gather(const char *path, struct stat_trace *trace, char *message, size_t room);
void stat_release(struct stat_trace *trace);

#endif
