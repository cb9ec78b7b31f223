/* contention.c - `slate bench contention`: many threads on few cores, foreign frees, units that
 * change hands.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "contention.h"

#include "numbers.h"

#include <slate.h>

#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char help_text[] =
    "usage: slate bench contention [OPTION]...\n"
    "Lets many threads allocate and free at once, blocks of other threads among them.\n"
    "\n"
    "  --with LIST       allocators as slate replay has them, but for the floor (default: all,\n"
    "                    that is slate, call, glibc and the known libraries that are found)\n"
    "  --threads N       threads (default: 8)\n"
    "  --operations N    of each thread: a block ends, another is made (default: 500000)\n"
    "  --runs N          timed runs of each, after one warm-up (default: 5)\n"
    "  --json FILE       write all runs as JSON\n"
    "  -h, --help        print this and stop\n";

static const char *case_name(size_t index) { return index == 0 ? "contention" : NULL; }

/* ---- the child ---- */

static double timeval_seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return timeval_seconds(usage.ru_utime) + timeval_seconds(usage.ru_stime);
}

static double wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *map(size_t bytes, struct bench_result *result)
{
    void *memory = child_map(bytes);
    if (!memory)
        bench_fail(result, BENCH_SETUP_FAILED, NULL, bytes);
    return memory;
}

static void run(size_t index, enum replay_kind kind, const struct bench_settings *settings,
                struct bench_result *result)
{
    (void)index;
    static struct contention all;
    const struct contention_kind *functions = &contention_malloc;
    if (kind == KIND_SLATE)
        functions = &contention_slate;
    else if (kind == KIND_CALL)
        functions = &contention_call;
    size_t count = (size_t)settings->threads;
    struct contention_thread *threads = map(count * sizeof *threads, result);
    pthread_t *handles = map(count * sizeof *handles, result);
    all.operations = (uint64_t)settings->operations;
    all.result = result;
    pthread_barrier_init(&all.start, NULL, (unsigned)count + 1);
    child_read_sizes(); /* touches what reading needs */
    child_reset_peak();
    struct child_sizes before = child_read_sizes();
    for (size_t i = 0; i < count; i++) {
        threads[i].all = &all;
        threads[i].number = i;
        errno = pthread_create(&handles[i], NULL, functions->work, &threads[i]);
        if (errno)
            bench_fail(result, BENCH_SETUP_FAILED, NULL, 0);
    }
    double processor = processor_seconds(), wall = wall_seconds();
    pthread_barrier_wait(&all.start);
    for (size_t i = 0; i < count; i++)
        pthread_join(handles[i], NULL);
    result->wall_seconds = wall_seconds() - wall;
    result->cpu_seconds = processor_seconds() - processor;
    functions->clear(&all);
    struct child_sizes after = child_read_sizes();
    result->resident_kb =
        after.peak_kb > before.resident_kb ? after.peak_kb - before.resident_kb : 0;
    result->operations = all.operations * count;
    struct slate_stats stats;
    if (kind != KIND_MALLOC && slate_stats(&stats, sizeof stats) == 0)
        result->waits = stats.contended;
}

/* ---- what is printed ---- */

static double wall_of(const struct bench_result *result) { return result->wall_seconds; }
static double cpu_of(const struct bench_result *result) { return result->cpu_seconds; }
static double waits_of(const struct bench_result *result) { return (double)result->waits; }

static double rate_of(const struct bench_result *result)
{
    return (double)result->operations / result->wall_seconds * 1e-6;
}

static double resident_of(const struct bench_result *result)
{
    return (double)result->resident_kb / 1024;
}

static void print(const struct bench_report *report, FILE *out)
{
    enum { NAME_WIDTH = 28, WIDTH = 9 };
    fprintf(out,
            "contention: %ld thread%s, %ld operations each; medians of %d run%s; x: against the "
            "best peer\n\n",
            report->settings.threads, report->settings.threads == 1 ? "" : "s",
            report->settings.operations, report->runs, report->runs == 1 ? "" : "s");
    fprintf(out, "%-*s%9s%9s%9s%9s%9s%9s%9s%9s\n", NAME_WIDTH, "", "Mop/s", "wall s", "cpu s",
            "RSS MiB", "waits", "x wall", "x cpu", "x RSS");
    for (size_t i = 0; i < report->allocators->count; i++) {
        const struct replay_allocator *allocator = &report->allocators->items[i];
        bool counts_waits = allocator->kind != KIND_MALLOC;
        fprintf(out, "%-*.*s", NAME_WIDTH, NAME_WIDTH - 1, allocator->label);
        if (*bench_failed(report, 0, i)) {
            fputs("   failed\n", out);
            continue;
        }
        double wall = bench_median(report, 0, i, wall_of), cpu = bench_median(report, 0, i, cpu_of),
               resident = bench_median(report, 0, i, resident_of);
        print_cell(out, bench_median(report, 0, i, rate_of), WIDTH, 2);
        print_cell(out, wall, WIDTH, 3);
        print_cell(out, cpu, WIDTH, 3);
        print_cell(out, resident, WIDTH, 1);
        print_cell(out, counts_waits ? bench_median(report, 0, i, waits_of) : NAN, WIDTH, 0);
        print_cell(out, wall / bench_best_peer(report, 0, wall_of), WIDTH, 3);
        print_cell(out, cpu / bench_best_peer(report, 0, cpu_of), WIDTH, 3);
        print_cell(out, resident / bench_best_peer(report, 0, resident_of), WIDTH, 3);
        fputc('\n', out);
    }
}

static json_t *json_run(const struct bench_result *result)
{
    return json_pack("{s:f,s:f,s:I,s:I,s:I}", "wall_s", result->wall_seconds, "cpu_s",
                     result->cpu_seconds, "operations", (json_int_t)result->operations, "rss_kb",
                     (json_int_t)result->resident_kb, "waits", (json_int_t)result->waits);
}

const struct bench bench_contention = {.name = "contention",
                                       .options = "tn",
                                       .help = help_text,
                                       .case_name = case_name,
                                       .warm_up = true,
                                       .print = print,
                                       .json_run = json_run,
                                       .run = run};
