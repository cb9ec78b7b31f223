/* micro.c - `slate bench micro`: nanoseconds of small operations.
 *
 * SPDX-License-Identifier: MIT
 */
#include "micro.h"

#include "numbers.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *text;
} operations[MICRO_COUNT] = {
#define MICRO_TEXT(name, text) [MICRO_##name] = {#name, text},
    MICRO_OPERATIONS(MICRO_TEXT)
#undef MICRO_TEXT
};

static const char help_text[] =
    "usage: slate bench micro [OPTION]...\n"
    "Times small operations, each on several allocators, in nanoseconds of processor time.\n"
    "\n"
    "  --with LIST       allocators as slate replay has them, but for the floor (default: all,\n"
    "                    that is slate, call, glibc and the known libraries that are found)\n"
    "  --runs N          runs of each, of which the median counts (default: 5)\n"
    "  --json FILE       write all runs as JSON\n"
    "  --only LIST       only these operations, separated by commas\n"
    "  --time MS         least time of a loop in milliseconds (default: 20)\n"
    "  -h, --help        print this and stop\n"
    "\n"
    "Operations:\n";

static const char *case_name(size_t index)
{
    return index < MICRO_COUNT ? operations[index].name : NULL;
}

static const char *case_text(size_t index) { return operations[index].text; }

/* ---- the child ---- */

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void prepare(struct micro *micro)
{
    uint64_t state = 1;
    for (uint16_t i = 0; i < MICRO_BATCH; i++) {
        micro->in_order[i] = micro->shuffled[i] = i;
        micro->reverse[i] = (uint16_t)(MICRO_BATCH - 1 - i);
    }
    for (size_t i = MICRO_BATCH - 1; i > 0; i--) {
        size_t other = next_random(&state) % (i + 1);
        uint16_t kept = micro->shuffled[i];
        micro->shuffled[i] = micro->shuffled[other];
        micro->shuffled[other] = kept;
    }
    for (size_t i = 0; i < MICRO_SEQUENCE; i++) {
        /* Three of four small blocks have at most 128 bytes, as in most compilers. */
        uint32_t kind = next_random(&state), small = next_random(&state);
        micro->slots[i] = (uint16_t)(next_random(&state) % MICRO_LIVE);
        micro->small_sizes[i] = (uint16_t)(16 + small % (kind % 4 ? 113 : 497));
        micro->medium_sizes[i] = (uint16_t)(1024 + next_random(&state) % (16384 - 1024 + 1));
    }
}

static void run(size_t index, enum replay_kind kind, const struct bench_settings *settings,
                struct bench_result *result)
{
    static struct micro micro;
    micro_operation *const *table = micro_malloc;
    if (kind == KIND_SLATE)
        table = micro_slate;
    else if (kind == KIND_CALL)
        table = micro_call;
    double least = (double)settings->milliseconds * 1e-3;
    micro.result = result;
    prepare(&micro);
    for (micro.rounds = 1;;) {
        micro.seconds = 0;
        micro.operations = 0;
        table[index](&micro);
        if (micro.seconds >= least)
            break;
        /* The loops that are too short warm up the rest. */
        double wanted = micro.seconds > 0 ? 1.2 * least / micro.seconds : 16;
        micro.rounds *= wanted < 2 ? 2 : wanted > 16 ? 16 : (uint64_t)wanted;
    }
    result->cpu_seconds = micro.seconds;
    result->operations = micro.operations;
}

/* ---- what is printed ---- */

static double nanoseconds(const struct bench_result *result)
{
    return result->cpu_seconds / (double)result->operations * 1e9;
}

enum { LINE_WIDTH = 100, NAME_WIDTH = 27, COLUMN_LEAST = 9, COLUMN_MOST = 14 };

static int column_width(const struct replay_list *list)
{
    int width = COLUMN_LEAST;
    for (size_t i = 0; i < list->count; i++) {
        int wanted = (int)strlen(list->items[i].label) + 1;
        width = wanted > width ? wanted : width;
    }
    return width > COLUMN_MOST ? COLUMN_MOST : width;
}

/* The columns from `first` to before `end`: nanoseconds, or ratios to the best peer. */
static void print_columns(const struct bench_report *report, size_t first, size_t end, int width,
                          bool ratios, FILE *out)
{
    fprintf(out, "\n%-*s", NAME_WIDTH, ratios ? "x best peer" : "ns");
    for (size_t i = first; i < end; i++)
        fprintf(out, "%*.*s", width, width - 1, report->allocators->items[i].label);
    fputc('\n', out);
    struct mean means[end - first];
    memset(means, 0, sizeof means);
    for (size_t place = 0; place < report->case_count; place++) {
        fprintf(out, "%-*s", NAME_WIDTH, operations[report->cases[place]].text);
        for (size_t i = first; i < end; i++) {
            double value = bench_median(report, place, i, nanoseconds);
            if (ratios) {
                value /= bench_best_peer(report, place, nanoseconds);
                mean_add(&means[i - first], value);
            }
            print_cell(out, value, width, ratios || value < 100 ? 2 : 0);
        }
        fputc('\n', out);
    }
    if (!ratios)
        return;
    fprintf(out, "%-*s", NAME_WIDTH, "geometric mean");
    for (size_t i = first; i < end; i++)
        print_cell(out, mean_value(&means[i - first]), width, 2);
    fprintf(out, "\n%-*s", NAME_WIDTH, "worst");
    for (size_t i = first; i < end; i++)
        print_cell(out, means[i - first].count ? means[i - first].worst : NAN, width, 2);
    fputc('\n', out);
}

static void print(const struct bench_report *report, FILE *out)
{
    int width = column_width(report->allocators);
    size_t count = report->allocators->count, columns = (LINE_WIDTH - NAME_WIDTH) / (size_t)width;
    fprintf(out,
            "micro: nanoseconds of processor time for each operation; medians of %d run%s, each in "
            "a\nprocess of its own with loops of at least %ld ms\n",
            report->runs, report->runs == 1 ? "" : "s", report->settings.milliseconds);
    for (int ratios = 0; ratios < 2; ratios++)
        for (size_t first = 0; first < count; first += columns)
            print_columns(report, first, first + columns < count ? first + columns : count, width,
                          ratios, out);
}

static json_t *json_run(const struct bench_result *result)
{
    return json_pack("{s:f,s:I}", "ns", nanoseconds(result), "operations",
                     (json_int_t)result->operations);
}

const struct bench bench_micro = {.name = "micro",
                                  .options = "om",
                                  .help = help_text,
                                  .case_name = case_name,
                                  .case_text = case_text,
                                  .print = print,
                                  .json_run = json_run,
                                  .run = run};
