/* stat.c - `slate stat`: describes recorded traces, as text or as JSON.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "stat_gather.h"

#include "../lib/trace.h"
#include "commands.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] = "usage: slate stat [--json] TRACE...\n"
                                "Describes recorded traces: calls, sizes, lifetimes, live memory.\n"
                                "\n"
                                "  --json       one JSON object a trace\n"
                                "  -h, --help   print this and stop\n";

static const char *const share_names[STAT_SHARES] = {"le512", "le4096", "le32768", "larger"};
static const char *const ratio_names[STAT_RATIOS] = {"ratio_lt1.4", "ratio_1.4_1.9",
                                                     "ratio_1.9_2.6", "ratio_ge2.6"};
static const struct {
    const char *name;
    enum slate_trace_tag tag;
} types[] = {{"malloc", SLATE_TRACE_MALLOC},   {"calloc", SLATE_TRACE_CALLOC},
             {"realloc", SLATE_TRACE_REALLOC}, {"free", SLATE_TRACE_FREE},
             {"aligned", SLATE_TRACE_ALIGNED}, {"thread", SLATE_TRACE_THREAD},
             {"mark", SLATE_TRACE_MARK},       {"time", SLATE_TRACE_TIME}};
enum { TYPE_COUNT = sizeof types / sizeof types[0] };

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

static uint64_t carved_total(const struct stat_trace *trace)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < STAT_CLASS_COUNT; i++)
        total += trace->carved[i] * (i + 1) * STAT_CLASS_STEP;
    return total;
}

/* The file's name without directory and ".slt". */
static void name_of(const char *path, char *name, size_t room)
{
    const char *base = strrchr(path, '/');
    snprintf(name, room, "%s", base ? base + 1 : path);
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".slt") == 0)
        name[length - 4] = '\0';
}

/* ---- JSON ---- */

static void set_number(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void set_share(json_t *object, const char *name, double value, int decimals)
{
    double scale = pow(10, decimals);
    json_object_set_new(object, name, json_real(round(value * scale) / scale));
}

static json_t *json_shares(const uint64_t *parts, uint64_t whole, int decimals_of_larger)
{
    json_t *object = json_object();
    for (int i = 0; i < STAT_SHARES; i++)
        set_share(object, share_names[i], share(parts[i], whole),
                  i == STAT_LARGER ? decimals_of_larger : 4);
    return object;
}

static json_t *json_realloc(const struct stat_trace *trace)
{
    json_t *object = json_object();
    set_number(object, "grow", trace->grow);
    set_number(object, "shrink", trace->shrink);
    set_number(object, "same", trace->same);
    set_number(object, "within_class", trace->within_class);
    set_number(object, "old_bytes", trace->realloc_old_bytes);
    set_number(object, "new_bytes", trace->realloc_new_bytes);
    for (int i = 0; i < STAT_RATIOS; i++)
        set_number(object, ratio_names[i], trace->ratios[i]);
    return object;
}

static json_t *json_classes(const struct stat_trace *trace)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < STAT_CLASS_COUNT; i++) {
        char name[16];
        uint64_t size = (uint64_t)(i + 1) * STAT_CLASS_STEP;
        snprintf(name, sizeof name, "%" PRIu64, size);
        if (trace->carved[i])
            set_number(object, name, trace->carved[i] * size);
    }
    return object;
}

static json_t *json_lifetimes(const struct stat_trace *trace)
{
    json_t *object = json_object();
    for (int i = 0; i < STAT_LIFETIMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (trace->lifetimes[i])
            set_share(object, name, share(trace->lifetimes[i], trace->objects), 5);
    }
    return object;
}

static json_t *json_curve(const struct stat_trace *trace)
{
    json_t *array = json_array();
    for (size_t i = 0; i < trace->curve_count; i++)
        json_array_append_new(array, json_pack("[I,I,I]", (json_int_t)trace->curve[i].event,
                                               (json_int_t)trace->curve[i].bytes,
                                               (json_int_t)trace->curve[i].objects));
    return array;
}

static json_t *json_marks(const struct stat_trace *trace)
{
    json_t *array = json_array();
    for (size_t i = 0; i < trace->mark_count; i++) {
        const struct stat_mark *mark = &trace->marks[i];
        json_t *object = json_object();
        json_t *text = json_stringn(mark->text, mark->length);
        json_object_set_new(object, "text", text ? text : json_string("(not UTF-8)"));
        set_number(object, "event", mark->event);
        set_number(object, "us", mark->microseconds);
        set_number(object, "live", mark->live);
        set_number(object, "total", mark->total);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *json_of(const struct stat_trace *trace, const char *name)
{
    json_t *object = json_object();
    json_t *by_type = json_object();
    json_t *by_thread = json_array();
    json_t *top = json_array();
    json_object_set_new(object, "name", json_string(name));
    json_object_set_new(object, "format", json_string("SLT1"));
    json_object_set_new(object, "valid", json_true());
    json_object_set_new(object, "complete", json_boolean(trace->complete));
    set_number(object, "file_bytes", trace->file_bytes);
    set_number(object, "raw_bytes", trace->raw_bytes);
    set_number(object, "events", trace->events);
    for (int i = 0; i < TYPE_COUNT; i++)
        set_number(by_type, types[i].name, trace->by_tag[types[i].tag]);
    json_object_set_new(object, "events_by_type", by_type);
    set_number(object, "objects", trace->objects);
    set_number(object, "threads", trace->threads);
    set_number(object, "recorded_us", trace->recorded_microseconds);
    set_number(object, "total_bytes", trace->total_bytes);
    set_number(object, "peak_live_bytes", trace->peak_live_bytes);
    set_number(object, "peak_live_objects", trace->peak_live_objects);
    set_share(object, "peak_live_at", share(trace->peak_event, trace->events), 4);
    set_number(object, "live_bytes_at_end", trace->live_bytes);
    set_number(object, "live_objects_at_end", trace->live_objects);
    set_number(object, "largest", trace->largest);
    set_number(object, "zero_size", trace->zero_size);
    set_number(object, "max_log2_alignment", trace->max_log2_alignment);
    json_object_set_new(object, "share_of_bytes",
                        json_shares(trace->share_bytes, trace->total_bytes, 4));
    json_object_set_new(object, "share_of_objects",
                        json_shares(trace->share_objects, trace->objects, 6));
    uint64_t frees = trace->by_tag[SLATE_TRACE_FREE];
    set_share(object, "share_cross_thread_frees", share(trace->cross_thread_frees, frees), 4);
    set_number(object, "cross_thread_frees", trace->cross_thread_frees);
    set_number(object, "cross_thread_reallocs", trace->cross_thread_reallocs);
    set_share(object, "share_objects_freed", share(trace->ended, trace->objects), 4);
    set_share(object, "share_frees_of_newest", share(trace->frees_of_newest, frees), 4);
    set_share(object, "share_frees_of_newest_16", share(trace->frees_of_newest_16, frees), 4);
    json_object_set_new(object, "carved_by_class", json_classes(trace));
    set_number(object, "carved_total", carved_total(trace));
    set_number(object, "carved_total_per_owner_thread", trace->carved_per_owner_thread);
    json_object_set_new(object, "realloc", json_realloc(trace));
    json_object_set_new(object, "lifetime_log2_bytes_allocated", json_lifetimes(trace));
    for (uint32_t i = 0; i < trace->threads; i++)
        json_array_append_new(by_thread, json_integer((json_int_t)trace->objects_by_thread[i]));
    json_object_set_new(object, "objects_by_thread", by_thread);
    for (size_t i = 0; i < trace->top_count; i++)
        json_array_append_new(top, json_pack("[I,I]", (json_int_t)trace->top_sizes[i].size,
                                             (json_int_t)trace->top_sizes[i].count));
    json_object_set_new(object, "top_sizes", top);
    json_object_set_new(object, "live_curve", json_curve(trace));
    json_object_set_new(object, "marks", json_marks(trace));
    return object;
}

static void print_json(const struct stat_trace *trace, const char *name)
{
    json_t *object = json_of(trace, name);
    json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(object);
}

/* ---- text ---- */

static double mebibytes(uint64_t bytes) { return (double)bytes / (1 << 20); }

static void print_shares(const char *title, const uint64_t *parts, uint64_t whole)
{
    printf("  %-22s", title);
    for (int i = 0; i < STAT_SHARES; i++)
        printf(" %s %.2f %%%s", share_names[i], share(parts[i], whole) * 100,
               i + 1 < STAT_SHARES ? "," : "\n");
}

static void print_calls(const struct stat_trace *trace)
{
    uint64_t frees = trace->by_tag[SLATE_TRACE_FREE];
    printf("  %-22s %" PRIu64 ":", "calls", trace->events);
    for (int i = 0; i < TYPE_COUNT; i++)
        if (trace->by_tag[types[i].tag])
            printf(" %s %" PRIu64, types[i].name, trace->by_tag[types[i].tag]);
    printf("\n  %-22s %" PRIu64 " by %" PRIu32 " thread%s, %.2f %% ended\n", "objects",
           trace->objects, trace->threads, trace->threads == 1 ? "" : "s",
           share(trace->ended, trace->objects) * 100);
    printf("  %-22s", "objects by thread");
    for (uint32_t i = 0; i < trace->threads; i++)
        printf(" %" PRIu64, trace->objects_by_thread[i]);
    printf("\n  %-22s %.3f s\n", "recorded", (double)trace->recorded_microseconds * 1e-6);
    printf("  %-22s newest %.2f %%, newest 16 %.2f %%, of another thread %.2f %% (%" PRIu64 ")\n",
           "frees of", share(trace->frees_of_newest, frees) * 100,
           share(trace->frees_of_newest_16, frees) * 100,
           share(trace->cross_thread_frees, frees) * 100, trace->cross_thread_frees);
    printf("  %-22s grow %" PRIu64 ", shrink %" PRIu64 ", same %" PRIu64 ", within a class %" PRIu64
           ", of another thread %" PRIu64 "\n",
           "realloc", trace->grow, trace->shrink, trace->same, trace->within_class,
           trace->cross_thread_reallocs);
    printf("  %-22s below 1.4 %" PRIu64 ", to 1.9 %" PRIu64 ", to 2.6 %" PRIu64 ", above %" PRIu64
           "; %.2f MiB to %.2f MiB\n",
           "realloc growth", trace->ratios[STAT_LT1_4], trace->ratios[STAT_1_4_TO_1_9],
           trace->ratios[STAT_1_9_TO_2_6], trace->ratios[STAT_GE2_6],
           mebibytes(trace->realloc_old_bytes), mebibytes(trace->realloc_new_bytes));
}

static void print_memory(const struct stat_trace *trace)
{
    printf("  %-22s %.2f MiB allocated, largest %" PRIu64 ", %" PRIu64
           " of size 0, alignment up to 2^%" PRIu32 "\n",
           "bytes", mebibytes(trace->total_bytes), trace->largest, trace->zero_size,
           trace->max_log2_alignment);
    printf("  %-22s %.2f MiB (after %.2f %% of the calls), %" PRIu64 " objects\n", "peak live",
           mebibytes(trace->peak_live_bytes), share(trace->peak_event, trace->events) * 100,
           trace->peak_live_objects);
    printf("  %-22s %.2f MiB, %" PRIu64 " objects\n", "live at the end",
           mebibytes(trace->live_bytes), trace->live_objects);
    print_shares("share of bytes", trace->share_bytes, trace->total_bytes);
    print_shares("share of objects", trace->share_objects, trace->objects);
    printf("  %-22s %.2f MiB, %.2f MiB with lists a thread", "carved to 512 bytes",
           mebibytes(carved_total(trace)), mebibytes(trace->carved_per_owner_thread));
    for (unsigned i = 0, shown = 0; i < STAT_CLASS_COUNT; i++) {
        if (!trace->carved[i])
            continue;
        uint64_t size = (uint64_t)(i + 1) * STAT_CLASS_STEP;
        printf("%s%4" PRIu64 ": %-12" PRIu64, shown++ % 4 ? " " : "\n    ", size,
               trace->carved[i] * size);
    }
    putchar('\n');
}

/* A mark's text comes from the traced program: control characters would reach the terminal. */
static void print_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        putchar((unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i]);
    putchar('\n');
}

static void print_distributions(const struct stat_trace *trace)
{
    printf("  most frequent sizes (size x count)");
    for (size_t i = 0; i < trace->top_count; i++)
        printf("%s%" PRIu64 " x %" PRIu64, i % 5 ? ", " : "\n    ", trace->top_sizes[i].size,
               trace->top_sizes[i].count);
    printf("\n  objects ended, by bytes allocated in their lives (below 2^n: %% of all)");
    for (unsigned i = 0, shown = 0; i < STAT_LIFETIMES; i++)
        if (trace->lifetimes[i])
            printf("%s2^%-2u %6.3f %%", shown++ % 6 ? "  " : "\n    ", i,
                   share(trace->lifetimes[i], trace->objects) * 100);
    printf("\n  live memory over the calls (call, MiB, objects)\n");
    for (size_t i = 0; i < trace->curve_count; i++)
        printf("    %12" PRIu64 " %10.2f %10" PRIu64 "\n", trace->curve[i].event,
               mebibytes(trace->curve[i].bytes), trace->curve[i].objects);
    for (size_t i = 0; i < trace->mark_count; i++) {
        printf("  mark at call %" PRIu64 ", %.3f s, %.2f MiB live: ", trace->marks[i].event,
               (double)trace->marks[i].microseconds * 1e-6, mebibytes(trace->marks[i].live));
        print_plain(trace->marks[i].text, trace->marks[i].length);
    }
}

static void print_text(const struct stat_trace *trace, const char *name)
{
    printf("%s: %" PRIu64 " bytes packed, %" PRIu64 " unpacked, %s\n", name, trace->file_bytes,
           trace->raw_bytes, trace->complete ? "complete" : "cut short");
    print_calls(trace);
    print_memory(trace);
    print_distributions(trace);
}

int command_stat(int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool json = false;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        if (option == 'j') {
            json = true;
        } else if (option == 'h') {
            fputs(help_text, stdout);
            return EXIT_GOOD;
        } else {
            complain("stat: unknown option \"%s\"; slate stat --help lists them", argv[optind - 1]);
            return EXIT_USAGE;
        }
    }
    if (optind == argc) {
        complain("stat: a trace is missing; slate stat --help says more");
        return EXIT_USAGE;
    }
    for (int i = optind; i < argc; i++) {
        char message[768], name[256];
        struct stat_trace trace;
        int result = stat_gather(argv[i], &trace, message, sizeof message);
        name_of(argv[i], name, sizeof name);
        if (result < 0) {
            complain("%s", message);
        } else {
            if (!trace.complete)
                complain("%s: warning: cut short, used up to its %" PRIu64 " allocation calls",
                         argv[i], trace.events);
            json ? print_json(&trace, name) : print_text(&trace, name);
        }
        stat_release(&trace);
        if (result < 0)
            return EXIT_USAGE;
    }
    return EXIT_GOOD;
}
