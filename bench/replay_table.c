/* replay_table.c - the tables that `slate replay` prints.
 *
 * SPDX-License-Identifier: MIT
 */
#include "numbers.h"
#include "replay_report.h"

#include <math.h>

enum metric { WALL, USER, SYSTEM, CPU, ABOVE, RESIDENT, FAULTS, HUGE, TABLES, METRICS };

static const struct {
    const char *title;
    int decimals;
} columns[METRICS] = {
    [WALL] = {"wall s", 3},   [USER] = {"user s", 3},   [SYSTEM] = {"sys s", 3},
    [CPU] = {"cpu s", 3},     [ABOVE] = {"above s", 3}, [RESIDENT] = {"RSS MiB", 1},
    [FAULTS] = {"faults", 0}, [HUGE] = {"huge MiB", 0}, [TABLES] = {"PTE KiB", 0},
};

enum { NAME_WIDTH = 19, COLUMN_WIDTH = 9 };

static int floor_index(const struct replay_report *report)
{
    for (size_t i = 0; i < report->allocators->count; i++)
        if (report->allocators->items[i].kind == KIND_FLOOR)
            return (int)i;
    return -1;
}

/* One run's value; NaN where there is none. */
static double value_of(const struct replay_report *report, size_t trace, size_t allocator, int run,
                       enum metric metric)
{
    if (*replay_failed(report, trace, allocator))
        return NAN;
    const struct replay_result *result = &replay_runs(report, trace, allocator)[run];
    int floor = floor_index(report);
    switch (metric) {
    case WALL:
        return result->wall_seconds;
    case USER:
        return result->user_seconds;
    case SYSTEM:
        return result->system_seconds;
    case CPU:
        return result->user_seconds + result->system_seconds;
    case ABOVE:
        if (floor < 0 || (size_t)floor == allocator)
            return NAN;
        return result->wall_seconds - value_of(report, trace, (size_t)floor, run, WALL);
    case RESIDENT:
        return (double)result->resident_kb / 1024;
    case FAULTS:
        return (double)result->minor_faults;
    case HUGE:
        return (double)result->anonymous_huge_kb / 1024;
    case TABLES:
        return (double)result->page_table_kb;
    default:
        return NAN;
    }
}

static struct spread spread_over_runs(const struct replay_report *report, size_t trace,
                                      size_t allocator, enum metric metric)
{
    double values[report->runs];
    for (int run = 0; run < report->runs; run++)
        values[run] = value_of(report, trace, allocator, run, metric);
    return spread_of(values, report->runs);
}

/* The median of the runs' ratios, each against the base's run of the same round. */
static double ratio_to_base(const struct replay_report *report, size_t trace, size_t allocator,
                            enum metric metric)
{
    double values[report->runs];
    for (int run = 0; run < report->runs; run++) {
        double base = value_of(report, trace, report->base, run, metric);
        values[run] = base > 0 ? value_of(report, trace, allocator, run, metric) / base : NAN;
    }
    return spread_of(values, report->runs).median;
}

static void print_head(FILE *out, const char *title)
{
    fprintf(out, "%-*.*s", NAME_WIDTH, NAME_WIDTH, title);
    for (int metric = 0; metric < METRICS; metric++)
        fprintf(out, "%*s", COLUMN_WIDTH, columns[metric].title);
    fputc('\n', out);
}

static void print_name(FILE *out, const struct replay_report *report, size_t allocator)
{
    fprintf(out, "%-*.*s", NAME_WIDTH, NAME_WIDTH - 1, report->allocators->items[allocator].label);
}

void replay_print_trace(const struct replay_report *report, size_t trace, FILE *out)
{
    size_t count = report->allocators->count;
    char title[160];
    fprintf(out, "\n%s, %d run%s of each\n", report->trace_names[trace], report->runs,
            report->runs == 1 ? "" : "s");
    print_head(out, "median");
    for (size_t i = 0; i < count; i++) {
        print_name(out, report, i);
        if (*replay_failed(report, trace, i)) {
            fputs("   failed\n", out);
            continue;
        }
        for (int metric = 0; metric < METRICS; metric++)
            print_cell(out, spread_over_runs(report, trace, i, (enum metric)metric).median,
                       COLUMN_WIDTH, columns[metric].decimals);
        fputc('\n', out);
    }
    snprintf(title, sizeof title, "x %s", report->allocators->items[report->base].label);
    print_head(out, title);
    for (size_t i = 0; i < count; i++) {
        if (*replay_failed(report, trace, i))
            continue;
        print_name(out, report, i);
        for (int metric = 0; metric < METRICS; metric++)
            print_cell(out, ratio_to_base(report, trace, i, (enum metric)metric), COLUMN_WIDTH, 3);
        fputc('\n', out);
    }
    if (report->runs == 1)
        return;
    print_head(out, "min, max");
    for (size_t i = 0; i < count; i++) {
        if (*replay_failed(report, trace, i))
            continue;
        for (int most = 0; most < 2; most++) {
            if (most)
                fprintf(out, "%*s", NAME_WIDTH, "");
            else
                print_name(out, report, i);
            for (int metric = 0; metric < METRICS; metric++) {
                struct spread spread = spread_over_runs(report, trace, i, (enum metric)metric);
                print_cell(out, most ? spread.most : spread.least, COLUMN_WIDTH,
                           columns[metric].decimals);
            }
            fputc('\n', out);
        }
    }
}

/* ---- over all traces ---- */

/* The least median among the peers (any allocator that is neither slate nor the floor); NaN without
 * one. */
static double best_peer(const struct replay_report *report, size_t trace, enum metric metric)
{
    double best = NAN;
    for (size_t i = 0; i < report->allocators->count; i++) {
        if (!report->allocators->items[i].peer)
            continue;
        double value = spread_over_runs(report, trace, i, metric).median;
        if (isnan(best) || value < best)
            best = value;
    }
    return best;
}

void replay_print_summary(const struct replay_report *report, FILE *out)
{
    static const enum metric compared[] = {CPU, ABOVE, RESIDENT};
    enum { COMPARED = sizeof compared / sizeof compared[0] };
    fprintf(
        out,
        "\nall %zu traces: geometric means against the best peer on each trace (with the worst\n"
        "trace's) and against %s; traces where one failed are left out\n",
        report->trace_count, report->allocators->items[report->base].label);
    fprintf(out, "%-*s%9s%9s%9s%9s%9s%9s%9s%9s%7s\n", NAME_WIDTH, "", "cpu", "worst", "above",
            "worst", "RSS", "worst", "x cpu", "x RSS", "traces");
    for (size_t i = 0; i < report->allocators->count; i++) {
        struct mean peers[COMPARED] = {{0}}, base[METRICS] = {{0}};
        size_t traces = 0;
        for (size_t trace = 0; trace < report->trace_count; trace++) {
            if (*replay_failed(report, trace, i))
                continue;
            traces++;
            for (int k = 0; k < COMPARED; k++)
                mean_add(&peers[k], spread_over_runs(report, trace, i, compared[k]).median /
                                        best_peer(report, trace, compared[k]));
            mean_add(&base[CPU], ratio_to_base(report, trace, i, CPU));
            mean_add(&base[RESIDENT], ratio_to_base(report, trace, i, RESIDENT));
        }
        print_name(out, report, i);
        for (int k = 0; k < COMPARED; k++) {
            print_cell(out, mean_value(&peers[k]), COLUMN_WIDTH, 3);
            print_cell(out, peers[k].count ? peers[k].worst : NAN, COLUMN_WIDTH, 3);
        }
        print_cell(out, mean_value(&base[CPU]), COLUMN_WIDTH, 3);
        print_cell(out, mean_value(&base[RESIDENT]), COLUMN_WIDTH, 3);
        fprintf(out, "%7zu\n", traces);
    }
}

/* ---- everything at once ---- */

void replay_print_all(const struct replay_report *report, FILE *out)
{
    static const enum metric shown[] = {CPU, ABOVE, RESIDENT, FAULTS, HUGE, TABLES};
    static const enum metric compared[] = {CPU, ABOVE, RESIDENT};
    enum {
        SHOWN = sizeof shown / sizeof shown[0],
        COMPARED = sizeof compared / sizeof compared[0]
    };
    fprintf(out, "Medians of %d run%s; x: against the best peer on the trace.\n", report->runs,
            report->runs == 1 ? "" : "s");
    for (size_t trace = 0; trace < report->trace_count; trace++) {
        fprintf(out, "\n%-*.*s", NAME_WIDTH, NAME_WIDTH - 1, report->trace_names[trace]);
        for (int k = 0; k < SHOWN; k++)
            fprintf(out, "%*s", COLUMN_WIDTH, columns[shown[k]].title);
        fprintf(out, "%*s%*s%*s\n", COLUMN_WIDTH, "x cpu", COLUMN_WIDTH, "x above", COLUMN_WIDTH,
                "x RSS");
        for (size_t i = 0; i < report->allocators->count; i++) {
            print_name(out, report, i);
            if (*replay_failed(report, trace, i)) {
                fputs("   failed\n", out);
                continue;
            }
            for (int k = 0; k < SHOWN; k++)
                print_cell(out, spread_over_runs(report, trace, i, shown[k]).median, COLUMN_WIDTH,
                           columns[shown[k]].decimals);
            for (int k = 0; k < COMPARED; k++)
                print_cell(out,
                           spread_over_runs(report, trace, i, compared[k]).median /
                               best_peer(report, trace, compared[k]),
                           COLUMN_WIDTH, 3);
            fputc('\n', out);
        }
    }
    if (report->trace_count > 1)
        replay_print_summary(report, out);
}
