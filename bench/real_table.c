/* real_table.c - the tables and the JSON of `slate real`.
 *
 * SPDX-License-Identifier: MIT
 */
#include "numbers.h"
#include "real.h"

#include <math.h>

enum metric { USER, SYSTEM, WALL, RESIDENT, FAULTS, CPU, METRICS };

static const struct {
    const char *title;
    int decimals;
} columns[METRICS] = {[USER] = {"user s", 3},      [SYSTEM] = {"sys s", 3},  [WALL] = {"wall s", 3},
                      [RESIDENT] = {"RSS MiB", 1}, [FAULTS] = {"faults", 0}, [CPU] = {"cpu s", 3}};

enum { NAME_WIDTH = 19, COLUMN_WIDTH = 9, SHOWN = CPU };

/* What is put into ratios. */
static const struct {
    enum metric metric;
    bool to_best; /* else to the base */
    const char *title;
} ratios[] = {{CPU, false, "cpu/base"},
              {RESIDENT, false, "RSS/base"},
              {CPU, true, "cpu/best"},
              {RESIDENT, true, "RSS/best"}};

enum { RATIOS = sizeof ratios / sizeof ratios[0] };

static double value_of(const struct real_result *result, enum metric metric)
{
    switch (metric) {
    case USER:
        return result->user_seconds;
    case SYSTEM:
        return result->system_seconds;
    case WALL:
        return result->wall_seconds;
    case RESIDENT:
        return (double)result->resident_kb / 1024;
    case FAULTS:
        return (double)result->minor_faults;
    default:
        return result->user_seconds + result->system_seconds;
    }
}

/* NaN where an allocator failed. */
static double median(const struct real_report *report, size_t program, size_t allocator,
                     enum metric metric)
{
    double values[report->runs];
    if (*real_failed(report, program, allocator))
        return NAN;
    for (int run = 0; run < report->runs; run++)
        values[run] = value_of(&real_runs(report, program, allocator)[run], metric);
    return spread_of(values, report->runs).median;
}

/* The least among those that are not slate. */
static double best_peer(const struct real_report *report, size_t program, enum metric metric)
{
    double best = NAN;
    for (size_t i = 0; i < report->allocators->count; i++) {
        if (!report->allocators->items[i].peer)
            continue;
        double value = median(report, program, i, metric);
        if (isnan(best) || value < best)
            best = value;
    }
    return best;
}

static double ratio(const struct real_report *report, size_t program, size_t allocator, int which)
{
    enum metric metric = ratios[which].metric;
    return median(report, program, allocator, metric) /
           (ratios[which].to_best ? best_peer(report, program, metric)
                                  : median(report, program, report->base, metric));
}

static void print_name(const char *name, FILE *out)
{
    fprintf(out, "%-*.*s", NAME_WIDTH, NAME_WIDTH - 1, name);
}

void real_print_program(const struct real_report *report, size_t program, FILE *out)
{
    fputc('\n', out);
    print_name(report->programs->items[program].name, out);
    for (int k = 0; k < SHOWN; k++)
        fprintf(out, "%*s", COLUMN_WIDTH, columns[k].title);
    for (int k = 0; k < RATIOS; k++)
        fprintf(out, "%*s", COLUMN_WIDTH, ratios[k].title);
    fputc('\n', out);
    for (size_t i = 0; i < report->allocators->count; i++) {
        print_name(report->allocators->items[i].label, out);
        if (*real_failed(report, program, i)) {
            fputs("   failed\n", out);
            continue;
        }
        for (int k = 0; k < SHOWN; k++)
            print_cell(out, median(report, program, i, (enum metric)k), COLUMN_WIDTH,
                       columns[k].decimals);
        for (int k = 0; k < RATIOS; k++)
            print_cell(out, ratio(report, program, i, k), COLUMN_WIDTH, 3);
        fputc('\n', out);
    }
}

void real_print_summary(const struct real_report *report, FILE *out)
{
    char title[64];
    snprintf(title, sizeof title, "all %zu programs", report->programs->count);
    fputc('\n', out);
    print_name(title, out);
    for (int k = 0; k < RATIOS; k++)
        fprintf(out, "%*s%*s", COLUMN_WIDTH, ratios[k].title, COLUMN_WIDTH, "worst");
    fprintf(out, "%*s\n", COLUMN_WIDTH, "failed");
    for (size_t i = 0; i < report->allocators->count; i++) {
        int failed = 0;
        print_name(report->allocators->items[i].label, out);
        for (int k = 0; k < RATIOS; k++) {
            struct mean mean = {0};
            for (size_t program = 0; program < report->programs->count; program++)
                mean_add(&mean, ratio(report, program, i, k));
            print_cell(out, mean_value(&mean), COLUMN_WIDTH, 3);
            print_cell(out, mean.count ? mean.worst : NAN, COLUMN_WIDTH, 3);
        }
        for (size_t program = 0; program < report->programs->count; program++)
            failed += *real_failed(report, program, i);
        fprintf(out, "%*d\n", COLUMN_WIDTH, failed);
    }
}

/* ---- JSON ---- */

static json_t *json_run(const struct real_result *result)
{
    return json_pack(
        "{s:f,s:f,s:f,s:I,s:I,s:I}", "wall_s", result->wall_seconds, "user_s", result->user_seconds,
        "sys_s", result->system_seconds, "rss_kb", (json_int_t)result->resident_kb, "minor_faults",
        (json_int_t)result->minor_faults, "major_faults", (json_int_t)result->major_faults);
}

static json_t *json_words(char *const *words)
{
    json_t *array = json_array();
    for (; *words; words++) {
        json_t *word = json_string(*words);
        json_array_append_new(array, word ? word : json_string("?"));
    }
    return array;
}

json_t *real_json(const struct real_report *report)
{
    json_t *programs = json_array(), *results = json_array();
    for (size_t i = 0; i < report->programs->count; i++) {
        const struct real_program *program = &report->programs->items[i];
        json_array_append_new(programs, json_pack("{s:s,s:o,s:o}", "name", program->name,
                                                  "environment", json_words(program->settings),
                                                  "command", json_words(program->command)));
        for (size_t k = 0; k < report->allocators->count; k++) {
            const char *label = report->allocators->items[k].label;
            if (*real_failed(report, i, k)) {
                json_array_append_new(results, json_pack("{s:s,s:s,s:b}", "program", program->name,
                                                         "allocator", label, "failed", 1));
                continue;
            }
            json_t *runs = json_array();
            for (int run = 0; run < report->runs; run++)
                json_array_append_new(runs, json_run(&real_runs(report, i, k)[run]));
            json_array_append_new(results, json_pack("{s:s,s:s,s:o}", "program", program->name,
                                                     "allocator", label, "runs", runs));
        }
    }
    return json_pack("{s:o,s:o}", "programs", programs, "results", results);
}
