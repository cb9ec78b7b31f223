/* stat_gather.c - reads a trace once and counts what `slate stat` tells of it.
 *
 * SPDX-License-Identifier: MIT
 */
#include "stat_gather.h"

#include "../lib/trace.h"
#include "array.h"

#include <stdio.h>
#include <sys/stat.h>

enum {
    SAMPLES_MAX = 4096,     /* of the live curve; when reached every second one is dropped */
    SAMPLE_STEP_FIRST = 16, /* calls between two samples, at first */
    SIZES_ROOM_FIRST = 4096
};

struct live {
    uint64_t size;
    uint64_t total_before; /* bytes allocated before it was made */
    uint32_t next_free;
    uint32_t thread;
};

/* Live blocks of each class and the most there were, for one thread or for all. */
struct classes {
    uint64_t live[STAT_CLASS_COUNT], peak[STAT_CLASS_COUNT];
};

struct thread_classes {
    struct classes *classes; /* made when needed */
    uint64_t objects;
};

struct gatherer {
    struct stat_trace *trace;
    uint32_t *slot_of; /* an object's place in `live` */
    uint64_t slot_of_room;
    struct live *live;
    uint64_t live_room, live_used;
    uint32_t free_slot; /* 0: none; place 0 is never used */
    struct classes all;
    struct thread_classes *threads;
    uint64_t threads_room;
    struct stat_point samples[SAMPLES_MAX];
    size_t sample_count;
    uint64_t sample_step;
    struct stat_size *sizes; /* hash table; count 0: empty */
    uint64_t sizes_room, sizes_used;
    uint64_t marks_room;
};

/* ---- sizes ---- */

static struct stat_size *find_size(struct stat_size *sizes, uint64_t room, uint64_t size)
{
    uint64_t at = (size * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (room - 1);
    while (sizes[at].count && sizes[at].size != size)
        at = (at + 1) & (room - 1);
    return &sizes[at];
}

static int count_size(struct gatherer *gatherer, uint64_t size)
{
    if (gatherer->sizes_used * 2 >= gatherer->sizes_room) {
        uint64_t room = gatherer->sizes_room ? gatherer->sizes_room * 2 : SIZES_ROOM_FIRST;
        struct stat_size *sizes = calloc(room, sizeof *sizes);
        if (!sizes)
            return -1;
        for (uint64_t i = 0; i < gatherer->sizes_room; i++)
            if (gatherer->sizes[i].count)
                *find_size(sizes, room, gatherer->sizes[i].size) = gatherer->sizes[i];
        free(gatherer->sizes);
        gatherer->sizes = sizes;
        gatherer->sizes_room = room;
    }
    struct stat_size *entry = find_size(gatherer->sizes, gatherer->sizes_room, size);
    if (entry->count++ == 0) {
        entry->size = size;
        gatherer->sizes_used++;
    }
    return 0;
}

/* The most frequent first, the smaller first among equals. */
static int compare_sizes(const void *left, const void *right)
{
    const struct stat_size *a = left, *b = right;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->size < b->size ? -1 : a->size > b->size;
}

static void choose_top_sizes(struct gatherer *gatherer)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < gatherer->sizes_room; i++)
        if (gatherer->sizes[i].count)
            gatherer->sizes[used++] = gatherer->sizes[i];
    if (used)
        qsort(gatherer->sizes, used, sizeof *gatherer->sizes, compare_sizes);
    gatherer->trace->top_count = used < STAT_TOP_SIZES ? (size_t)used : STAT_TOP_SIZES;
    for (size_t i = 0; i < gatherer->trace->top_count; i++)
        gatherer->trace->top_sizes[i] = gatherer->sizes[i];
}

/* ---- classes ---- */

/* The class of a size, or STAT_CLASS_COUNT if it is above the largest. */
static unsigned class_of(uint64_t size)
{
    if (size > STAT_CLASS_COUNT * STAT_CLASS_STEP)
        return STAT_CLASS_COUNT;
    return size == 0 ? 0 : (unsigned)((size - 1) / STAT_CLASS_STEP);
}

static void classes_add(struct classes *classes, unsigned class)
{
    if (++classes->live[class] > classes->peak[class])
        classes->peak[class] = classes->live[class];
}

static struct thread_classes *thread_of(struct gatherer *gatherer, uint32_t index)
{
    if (array_grow(&gatherer->threads, &gatherer->threads_room, index + (uint64_t)1,
                   sizeof *gatherer->threads) < 0)
        return NULL;
    if (index >= gatherer->trace->threads)
        gatherer->trace->threads = index + 1;
    return &gatherer->threads[index];
}

/* ---- objects ---- */

static enum stat_share share_of(uint64_t size)
{
    return size <= 512     ? STAT_LE512
           : size <= 4096  ? STAT_LE4096
           : size <= 32768 ? STAT_LE32768
                           : STAT_LARGER;
}

static unsigned bit_length(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

static uint32_t take_slot(struct gatherer *gatherer)
{
    uint32_t slot = gatherer->free_slot;
    if (slot) {
        gatherer->free_slot = gatherer->live[slot].next_free;
        return slot;
    }
    uint64_t used = gatherer->live_used ? gatherer->live_used : 1;
    if (used >= UINT32_MAX ||
        array_grow(&gatherer->live, &gatherer->live_room, used + 1, sizeof *gatherer->live) < 0)
        return 0;
    gatherer->live_used = used + 1;
    return (uint32_t)used;
}

static int begin_object(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    struct thread_classes *thread = thread_of(gatherer, record->thread);
    uint32_t slot = take_slot(gatherer);
    if (!thread || !slot || count_size(gatherer, record->size) < 0 ||
        array_grow(&gatherer->slot_of, &gatherer->slot_of_room, record->object + 1,
                   sizeof *gatherer->slot_of) < 0)
        return -1;
    gatherer->slot_of[record->object] = slot;
    gatherer->live[slot] = (struct live){
        .size = record->size, .total_before = trace->total_bytes, .thread = record->thread};
    thread->objects++;
    trace->objects++;
    trace->total_bytes += record->size;
    trace->share_bytes[share_of(record->size)] += record->size;
    trace->share_objects[share_of(record->size)]++;
    trace->zero_size += record->size == 0;
    if (record->size > trace->largest)
        trace->largest = record->size;
    trace->live_bytes += record->size;
    trace->live_objects++;
    unsigned class = class_of(record->size);
    if (class < STAT_CLASS_COUNT) {
        if (!thread->classes && !(thread->classes = calloc(1, sizeof *thread->classes)))
            return -1;
        classes_add(&gatherer->all, class);
        classes_add(thread->classes, class);
    }
    return 0;
}

static void end_object(struct gatherer *gatherer, uint64_t object)
{
    struct stat_trace *trace = gatherer->trace;
    uint32_t slot = gatherer->slot_of[object];
    struct live *live = &gatherer->live[slot];
    trace->ended++;
    trace->live_bytes -= live->size;
    trace->live_objects--;
    trace->lifetimes[bit_length(trace->total_bytes - live->total_before)]++;
    unsigned class = class_of(live->size);
    if (class < STAT_CLASS_COUNT) {
        gatherer->all.live[class]--;
        gatherer->threads[live->thread].classes->live[class]--;
    }
    live->next_free = gatherer->free_slot;
    gatherer->free_slot = slot;
}

/* ---- records ---- */

static void count_free(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    const struct live *live = &gatherer->live[gatherer->slot_of[record->ended]];
    uint64_t reference = trace->objects - record->ended;
    trace->frees_of_newest += reference == 1;
    trace->frees_of_newest_16 += reference <= 16;
    trace->cross_thread_frees += live->thread != record->thread;
}

static void count_realloc(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    const struct live *live = &gatherer->live[gatherer->slot_of[record->ended]];
    uint64_t old = live->size, new = record->size;
    trace->cross_thread_reallocs += live->thread != record->thread;
    trace->realloc_old_bytes += old;
    trace->realloc_new_bytes += new;
    trace->within_class += class_of(old) < STAT_CLASS_COUNT && class_of(old) == class_of(new);
    trace->shrink += new < old;
    trace->same += new == old;
    if (new <= old)
        return;
    trace->grow++;
    double ratio = old ? (double)new / (double)old : 1e9;
    enum stat_ratio which = ratio < 1.4   ? STAT_LT1_4
                            : ratio < 1.9 ? STAT_1_4_TO_1_9
                            : ratio < 2.6 ? STAT_1_9_TO_2_6
                                          : STAT_GE2_6;
    trace->ratios[which]++;
}

static void sample(struct gatherer *gatherer)
{
    const struct stat_trace *trace = gatherer->trace;
    if (trace->events % gatherer->sample_step != 0)
        return;
    if (gatherer->sample_count == SAMPLES_MAX) {
        for (size_t i = 0; i < SAMPLES_MAX / 2; i++)
            gatherer->samples[i] = gatherer->samples[2 * i];
        gatherer->sample_count = SAMPLES_MAX / 2;
        gatherer->sample_step *= 2;
        if (trace->events % gatherer->sample_step != 0)
            return;
    }
    gatherer->samples[gatherer->sample_count++] =
        (struct stat_point){trace->events, trace->live_bytes, trace->live_objects};
}

static int count_call(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    if (!thread_of(gatherer, record->thread))
        return -1;
    if (record->tag == SLATE_TRACE_FREE)
        count_free(gatherer, record);
    if (record->tag == SLATE_TRACE_REALLOC)
        count_realloc(gatherer, record);
    if (record->tag == SLATE_TRACE_ALIGNED && record->log2_alignment > trace->max_log2_alignment)
        trace->max_log2_alignment = record->log2_alignment;
    if (record->tag == SLATE_TRACE_FREE || record->tag == SLATE_TRACE_REALLOC)
        end_object(gatherer, record->ended);
    if (record->tag != SLATE_TRACE_FREE && begin_object(gatherer, record) < 0)
        return -1;
    if (trace->live_bytes > trace->peak_live_bytes) {
        trace->peak_live_bytes = trace->live_bytes;
        trace->peak_event = trace->events;
    }
    if (trace->live_objects > trace->peak_live_objects)
        trace->peak_live_objects = trace->live_objects;
    sample(gatherer);
    trace->events++;
    return 0;
}

static int add_mark(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    if (array_grow(&trace->marks, &gatherer->marks_room, trace->mark_count + 1,
                   sizeof *trace->marks) < 0)
        return -1;
    char *text = malloc(record->text_length + 1);
    if (!text)
        return -1;
    if (record->text_length)
        memcpy(text, record->text, record->text_length);
    text[record->text_length] = '\0';
    trace->marks[trace->mark_count++] =
        (struct stat_mark){.text = text,
                           .length = record->text_length,
                           .event = trace->events,
                           .microseconds = trace->recorded_microseconds,
                           .live = trace->live_bytes,
                           .total = trace->total_bytes};
    return 0;
}

static int count_record(struct gatherer *gatherer, const struct slate_trace_record *record)
{
    struct stat_trace *trace = gatherer->trace;
    trace->by_tag[record->tag]++;
    switch (record->tag) {
    case SLATE_TRACE_THREAD:
        return 0;
    case SLATE_TRACE_MARK:
        return add_mark(gatherer, record);
    case SLATE_TRACE_TIME:
        trace->recorded_microseconds = record->microseconds;
        return 0;
    default:
        return count_call(gatherer, record);
    }
}

/* ---- the end ---- */

static int finish(struct gatherer *gatherer)
{
    struct stat_trace *trace = gatherer->trace;
    if (!thread_of(gatherer, 0))
        return -1;
    trace->objects_by_thread = calloc(trace->threads, sizeof *trace->objects_by_thread);
    if (!trace->objects_by_thread)
        return -1;
    for (uint32_t i = 0; i < trace->threads; i++) {
        const struct thread_classes *thread = &gatherer->threads[i];
        trace->objects_by_thread[i] = thread->objects;
        for (uint64_t class = 0; thread->classes && class < STAT_CLASS_COUNT; class ++)
            trace->carved_per_owner_thread +=
                thread->classes->peak[class] * (class + 1) * STAT_CLASS_STEP;
    }
    memcpy(trace->carved, gatherer->all.peak, sizeof trace->carved);
    choose_top_sizes(gatherer);
    trace->curve_count =
        gatherer->sample_count < STAT_CURVE_POINTS ? gatherer->sample_count : STAT_CURVE_POINTS;
    for (size_t i = 0; i < trace->curve_count; i++)
        trace->curve[i] =
            gatherer->samples[trace->curve_count > 1
                                  ? i * (gatherer->sample_count - 1) / (trace->curve_count - 1)
                                  : 0];
    return 0;
}

static int read_trace(struct gatherer *gatherer, const char *path, char *message, size_t room)
{
    struct slate_trace_reader *reader;
    struct slate_trace_record record;
    struct stat file;
    int result = slate_trace_open(&reader, path);
    bool memory = true;
    while (result >= 0 && memory && (result = slate_trace_next(reader, &record)) == 1)
        memory = count_record(gatherer, &record) == 0;
    if (result < 0)
        snprintf(message, room, "%s", slate_trace_message(reader));
    else if (!memory || finish(gatherer) < 0)
        snprintf(message, room, "%s: out of memory", path);
    else
        message[0] = '\0';
    gatherer->trace->complete = reader && !slate_trace_cut_short(reader);
    gatherer->trace->raw_bytes = reader ? slate_trace_raw_bytes(reader) : 0;
    gatherer->trace->file_bytes = stat(path, &file) == 0 ? (uint64_t)file.st_size : 0;
    slate_trace_close(reader);
    return message[0] ? -1 : 0;
}

int stat_gather(const char *path, struct stat_trace *trace, char *message, size_t room)
{
    memset(trace, 0, sizeof *trace);
    struct gatherer *gatherer = calloc(1, sizeof *gatherer);
    if (!gatherer) {
        snprintf(message, room, "%s: out of memory", path);
        return -1;
    }
    gatherer->trace = trace;
    gatherer->sample_step = SAMPLE_STEP_FIRST;
    int result = read_trace(gatherer, path, message, room);
    for (uint64_t i = 0; i < gatherer->threads_room; i++)
        free(gatherer->threads[i].classes);
    free(gatherer->threads);
    free(gatherer->slot_of);
    free(gatherer->live);
    free(gatherer->sizes);
    free(gatherer);
    return result;
}

void stat_release(struct stat_trace *trace)
{
    for (size_t i = 0; i < trace->mark_count; i++)
        free(trace->marks[i].text);
    free(trace->marks);
    free(trace->objects_by_thread);
}
