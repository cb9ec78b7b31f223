/* bench_idle.c - `slate bench idle`: working memory of threads that wait.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "bench.h"
#include "numbers.h"

#include <slate.h>

#include "../lib/scratch.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char help_text[] =
    "usage: slate bench idle [OPTION]...\n"
    "Compares what becomes of a thread's working memory while it waits: kept, freed before each "
    "wait,\n"
    "or slate's scratch with slate_thread_idle.\n"
    "Many threads each use 8 KiB to 1 MiB once and wait: how much each holds.  Then one thread is\n"
    "woken, uses as much and waits again, over and over: what a round costs.\n"
    "\n"
    "  --with LIST       allocators as slate replay has them, but for the floor (default: slate,\n"
    "                    slate:shared,glibc); scratch is on slate alone\n"
    "  --threads N       threads (default: 2000)\n"
    "  --operations N    rounds (default: 20000)\n"
    "  --runs N          runs of each, of which the median counts (default: 5)\n"
    "  --json FILE       write all runs as JSON\n"
    "  --only LIST       only these, separated by commas\n"
    "  -h, --help        print this and stop\n"
    "\n"
    "Ways:\n";

enum way { KEPT, DROPPED, SCRATCH, WAYS };

static const char *const names[WAYS] = {"kept", "dropped", "scratch"};
static const char *const texts[WAYS] = {"a block a thread, grown when needed", "freed at each wait",
                                        "slate's scratch, idle at each wait"};

static const char *case_name(size_t index) { return index < WAYS ? names[index] : NULL; }

static const char *case_text(size_t index) { return texts[index]; }

/* ---- one thread's working memory ---- */

static struct {
    enum way way;
    bool on_slate;
    struct bench_result *result;
} process;

struct worker {
    uint64_t random;
    char *block; /* KEPT */
    size_t capacity;
    uint64_t asked; /* bytes taken from the heap */
    uint64_t held;
};

static void *allocate(struct worker *worker, size_t size)
{
    worker->asked += size;
    void *block = process.on_slate ? slate_alloc(size) : malloc(size);
    if (!block)
        bench_fail(process.result, BENCH_NO_MEMORY, NULL, size);
    return block;
}

static void release(void *block)
{
    if (process.on_slate)
        slate_free(block);
    else
        free(block);
}

/* 8 KiB to 1 MiB, each doubling as likely as the next. */
static size_t next_size(struct worker *worker)
{
    worker->random = worker->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    uint32_t random = (uint32_t)(worker->random >> 33);
    size_t least = (size_t)8192 << random % 7;
    return least + (random >> 3) % least;
}

static void use(char *block, size_t size, uint64_t number)
{
    memset(block, (int)number, size);
    if ((unsigned char)block[size / 2] != (unsigned char)number)
        bench_fail(process.result, BENCH_CHANGED, block, size);
}

static void work(struct worker *worker, uint64_t number)
{
    size_t size = next_size(worker);
    switch (process.way) {
    case KEPT:
        if (size > worker->capacity) {
            release(worker->block);
            worker->block = allocate(worker, size);
            worker->capacity = size;
        }
        use(worker->block, size, number);
        break;
    case DROPPED: {
        char *block = allocate(worker, size);
        use(block, size, number);
        release(block);
        break;
    }
    default: {
        char *block = slate_scratch_begin() == 0 ? slate_scratch_alloc(size) : NULL;
        if (!block)
            bench_fail(process.result, BENCH_NO_MEMORY, NULL, size);
        use(block, size, number);
        slate_scratch_end();
        slate_thread_idle();
    }
    }
    worker->held = process.way == SCRATCH ? slatei_scratch_held() : worker->capacity;
}

/* ---- many threads that wait ---- */

static pthread_barrier_t all_there, all_idle, all_over;

static void *wait_once(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(&all_there);
    work(worker, 1);
    pthread_barrier_wait(&all_idle);
    pthread_barrier_wait(&all_over);
    release(worker->block);
    return NULL;
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    errno = pthread_create(thread, &attributes, function, argument);
    if (errno)
        bench_fail(process.result, BENCH_SETUP_FAILED, NULL, 0);
    pthread_attr_destroy(&attributes);
}

static void measure_waiting(size_t count)
{
    struct bench_result *result = process.result;
    struct worker *workers = child_map(count * sizeof *workers);
    pthread_t *threads = child_map(count * sizeof *threads);
    if (!workers || !threads)
        bench_fail(result, BENCH_SETUP_FAILED, NULL, count);
    pthread_barrier_init(&all_there, NULL, (unsigned)count + 1);
    pthread_barrier_init(&all_idle, NULL, (unsigned)count + 1);
    pthread_barrier_init(&all_over, NULL, (unsigned)count + 1);
    for (size_t i = 0; i < count; i++) {
        workers[i].random = i * 7919;
        start(&threads[i], wait_once, &workers[i]);
    }
    child_read_sizes();
    struct child_sizes before = child_read_sizes();
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&all_idle);
    struct child_sizes after = child_read_sizes();
    result->idle_kb =
        after.resident_kb > before.resident_kb ? after.resident_kb - before.resident_kb : 0;
    pthread_barrier_wait(&all_over);
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        result->held += workers[i].held;
    }
}

/* ---- rounds of one thread ---- */

static sem_t wake, done;
static uint64_t rounds;

static void *work_in_rounds(void *argument)
{
    struct worker *worker = argument;
    for (uint64_t i = 0; i < rounds; i++) {
        sem_wait(&wake);
        work(worker, i);
        sem_post(&done);
    }
    release(worker->block);
    return NULL;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static void measure_rounds(uint64_t count)
{
    struct bench_result *result = process.result;
    struct worker worker = {.random = 4711};
    struct rusage before, after;
    struct timespec from, to;
    pthread_t thread;
    sem_init(&wake, 0, 0);
    sem_init(&done, 0, 0);
    enum { WARM_UP = 200 };
    rounds = count + WARM_UP;
    start(&thread, work_in_rounds, &worker);
    for (int i = 0; i < WARM_UP; i++) {
        sem_post(&wake);
        sem_wait(&done);
    }
    uint64_t asked = worker.asked;
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint64_t i = 0; i < count; i++) {
        sem_post(&wake);
        sem_wait(&done);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_SELF, &after);
    pthread_join(thread, NULL);
    result->wall_seconds =
        (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    result->cpu_seconds = seconds_of(after.ru_utime) + seconds_of(after.ru_stime) -
                          seconds_of(before.ru_utime) - seconds_of(before.ru_stime);
    result->faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
    result->asked = worker.asked - asked;
    result->operations = count;
}

static void run(size_t index, enum replay_kind kind, const struct bench_settings *settings,
                struct bench_result *result)
{
    process.way = (enum way)index;
    process.on_slate = kind != KIND_MALLOC;
    process.result = result;
    if (process.way == SCRATCH && !process.on_slate)
        return; /* there is none: no operations */
    release(allocate(&(struct worker){0}, 1));
    measure_rounds((uint64_t)settings->operations);
    measure_waiting((size_t)settings->threads);
}

/* ---- what is printed ---- */

/* Not a number where there is nothing to measure. */
static double of_round(const struct bench_result *result, double value)
{
    return result->operations ? value / (double)result->operations : NAN;
}

static double wall_of(const struct bench_result *result)
{
    return of_round(result, result->wall_seconds * 1e6);
}

static double cpu_of(const struct bench_result *result)
{
    return of_round(result, result->cpu_seconds * 1e6);
}

static double faults_of(const struct bench_result *result)
{
    return result->operations ? (double)result->faults : NAN;
}

static double asked_of(const struct bench_result *result)
{
    return result->operations ? (double)result->asked / (1 << 20) : NAN;
}

static double held_of(const struct bench_result *result)
{
    return result->operations ? (double)result->held : NAN;
}

static double idle_of(const struct bench_result *result)
{
    return result->operations ? (double)result->idle_kb : NAN;
}

static void print(const struct bench_report *report, FILE *out)
{
    enum { NAME_WIDTH = 20, WIDTH = 10 };
    double threads = (double)report->settings.threads;
    fprintf(out,
            "idle: %ld threads that wait, and %ld rounds of one; medians of %d run%s; x kept: "
            "against a kept\nblock on the same allocator\n\n",
            report->settings.threads, report->settings.operations, report->runs,
            report->runs == 1 ? "" : "s");
    fprintf(out, "%-*s%-*s%10s%10s%10s%10s%10s%10s\n", NAME_WIDTH, "", 8, "", "us wall", "us cpu",
            "x kept", "faults", "MiB asked", "B held");
    for (size_t i = 0; i < report->allocators->count; i++) {
        double kept = NAN;
        for (size_t place = 0; place < report->case_count; place++) {
            if (report->cases[place] == KEPT)
                kept = bench_median(report, place, i, cpu_of);
            fprintf(out, "%-*.*s%-8s", NAME_WIDTH, NAME_WIDTH - 1,
                    report->allocators->items[i].label, names[report->cases[place]]);
            double cpu = bench_median(report, place, i, cpu_of);
            print_cell(out, bench_median(report, place, i, wall_of), WIDTH, 1);
            print_cell(out, cpu, WIDTH, 1);
            print_cell(out, cpu / kept, WIDTH, 3);
            print_cell(out, bench_median(report, place, i, faults_of), WIDTH, 0);
            print_cell(out, bench_median(report, place, i, asked_of), WIDTH, 0);
            print_cell(out, bench_median(report, place, i, held_of) / threads, WIDTH, 0);
            fputc('\n', out);
        }
    }
    fprintf(out, "\n%-*s%-*s%16s%16s\n", NAME_WIDTH, "growth, all idle", 8, "", "MiB resident",
            "bytes a thread");
    for (size_t i = 0; i < report->allocators->count; i++)
        for (size_t place = 0; place < report->case_count; place++) {
            double idle = bench_median(report, place, i, idle_of);
            fprintf(out, "%-*.*s%-8s", NAME_WIDTH, NAME_WIDTH - 1,
                    report->allocators->items[i].label, names[report->cases[place]]);
            print_cell(out, idle / 1024, 16, 1);
            print_cell(out, idle * 1024 / threads, 16, 0);
            fputc('\n', out);
        }
}

static json_t *json_run(const struct bench_result *result)
{
    return json_pack("{s:f,s:f,s:I,s:I,s:I,s:I,s:I}", "wall_s", result->wall_seconds, "cpu_s",
                     result->cpu_seconds, "rounds", (json_int_t)result->operations, "faults",
                     (json_int_t)result->faults, "asked", (json_int_t)result->asked, "held",
                     (json_int_t)result->held, "idle_rss_kb", (json_int_t)result->idle_kb);
}

const struct bench bench_idle = {.name = "idle",
                                 .options = "otn",
                                 .help = help_text,
                                 .all = "slate,slate:shared,glibc",
                                 .settings = {.threads = 2000, .operations = 20000},
                                 .case_name = case_name,
                                 .case_text = case_text,
                                 .print = print,
                                 .json_run = json_run,
                                 .run = run};
