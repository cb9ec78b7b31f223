/* bench.c - `slate bench`: small comparisons of allocators, and the runs that all of them share.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "bench.h"

#include "commands.h"
#include "launch.h"
#include "machine.h"
#include "numbers.h"
#include "output.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct bench *const benches[] = {&bench_micro, &bench_contention, &bench_append,
                                              &bench_idle};

enum {
    BENCH_COUNT = sizeof benches / sizeof benches[0],
    RUNS_MAX = 1000,
    MILLISECONDS_MAX = 10000,
    THREADS_MAX = 4096,
    OPERATIONS_MAX = 1000000000
};

static const char all_allocators[] = "slate,call,glibc,found";

struct options {
    const char *with, *json, *only;
    long runs;
    struct bench_settings settings;
};

const struct bench *bench_find(const char *name)
{
    for (size_t i = 0; i < BENCH_COUNT; i++)
        if (strcmp(name, benches[i]->name) == 0)
            return benches[i];
    return NULL;
}

/* ---- options ---- */

/* Puts the decimal in `text` into `value`.  Returns 0; or -1 after a complaint. */
static int parse_number(const struct bench *bench, const char *option, const char *text, long most,
                        long *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 1 || number > most) {
        complain("bench %s: --%s \"%s\": allowed is 1 to %ld", bench->name, option, text, most);
        return -1;
    }
    *value = number;
    return 0;
}

static void print_help(const struct bench *bench)
{
    fputs(bench->help, stdout);
    for (size_t i = 0; bench->case_text && bench->case_name(i); i++)
        printf("  %-16s  %s\n", bench->case_name(i), bench->case_text(i));
}

/* Returns -1 to go on, or the exit code. */
static int parse_options(const struct bench *bench, int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"with", required_argument, NULL, 'w'},
                                          {"runs", required_argument, NULL, 'r'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"time", required_argument, NULL, 'm'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"operations", required_argument, NULL, 'n'},
                                          {NULL, 0, NULL, 0}};
    int option, bad = 0;
    opterr = 0;
    for (int at = optind; (option = getopt_long(argc, argv, ":h", known, NULL)) != -1 && bad == 0;
         at = optind) {
        if (!strchr("wrjh:?", option) && !strchr(bench->options, option))
            option = '?';
        switch (option) {
        case 'w':
            options->with = optarg;
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'o':
            options->only = optarg;
            break;
        case 'r':
            bad = parse_number(bench, "runs", optarg, RUNS_MAX, &options->runs);
            break;
        case 'm':
            bad = parse_number(bench, "time", optarg, MILLISECONDS_MAX,
                               &options->settings.milliseconds);
            break;
        case 't':
            bad = parse_number(bench, "threads", optarg, THREADS_MAX, &options->settings.threads);
            break;
        case 'n':
            bad = parse_number(bench, "operations", optarg, OPERATIONS_MAX,
                               &options->settings.operations);
            break;
        case 'h':
            print_help(bench);
            return EXIT_GOOD;
        case ':':
            complain("bench %s: option %s wants a value", bench->name, argv[optind - 1]);
            return EXIT_USAGE;
        default:
            complain("bench %s: unknown option \"%s\"; slate bench %s --help lists them",
                     bench->name, argv[at], bench->name);
            return EXIT_USAGE;
        }
    }
    if (bad == 0 && optind < argc) {
        complain("bench %s: unknown argument \"%s\"; slate bench %s --help says more", bench->name,
                 argv[optind], bench->name);
        bad = -1;
    }
    return bad ? EXIT_USAGE : -1;
}

static bool is_among(const char *name, const char *list)
{
    size_t length = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || !list[length]))
            return true;
    return false;
}

/* Fills in report->cases from the LIST of --only, or with all.  Returns 0; or -1 after a complaint.
 */
static int choose_cases(const struct bench *bench, const char *only, struct bench_report *report)
{
    size_t count = 0;
    while (bench->case_name(count))
        count++;
    report->cases = calloc(count, sizeof *report->cases);
    if (!report->cases) {
        complain("bench: out of memory");
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        if (!only || is_among(bench->case_name(i), only))
            report->cases[report->case_count++] = i;
    for (const char *item = only; item; item = strchr(item, ',')) {
        item += *item == ',';
        int length = (int)strcspn(item, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", length, item);
        bool found = false;
        for (size_t i = 0; i < count; i++)
            found = found || strcmp(bench->case_name(i), name) == 0;
        if (!found) {
            complain("bench %s: unknown operation \"%s\"; slate bench %s --help lists them",
                     bench->name, name, bench->name);
            return -1;
        }
    }
    return 0;
}

/* ---- the runs ---- */

static void describe_failure(const struct bench_result *result, int status, char *what, size_t room)
{
    switch (result->status) {
    case BENCH_CHANGED:
        snprintf(what, room, "block at 0x%" PRIx64 " of %" PRIu64 " bytes changed", result->address,
                 result->size);
        break;
    case BENCH_NOT_ZERO:
        snprintf(what, room, "a zeroed block of %" PRIu64 " bytes is not all zero", result->size);
        break;
    case BENCH_NO_MEMORY:
        snprintf(what, room, "no memory for %" PRIu64 " bytes", result->size);
        break;
    case BENCH_NOT_PRELOADED:
        snprintf(what, room, "its library was not loaded or has no malloc (malloc is %s's)",
                 result->version);
        break;
    case BENCH_SETUP_FAILED:
        snprintf(what, room, "set-up failed: %s", strerror(result->error));
        break;
    default:
        launch_describe_end(status, what, room);
    }
}

/* Returns 0; or -1 after a complaint. */
static int run_once(const struct bench *bench, const struct bench_report *report, size_t index,
                    const struct replay_allocator *allocator, struct bench_result *result)
{
    char numbers[4][24], what[400];
    int status = 0;
    snprintf(numbers[0], sizeof numbers[0], "%zu", index);
    snprintf(numbers[1], sizeof numbers[1], "%ld", report->settings.milliseconds);
    snprintf(numbers[2], sizeof numbers[2], "%ld", report->settings.threads);
    snprintf(numbers[3], sizeof numbers[3], "%ld", report->settings.operations);
    const char *const arguments[] = {"bench-child",
                                     bench->name,
                                     numbers[0],
                                     launch_kind(allocator),
                                     allocator->library,
                                     numbers[1],
                                     numbers[2],
                                     numbers[3],
                                     NULL};
    if (launch_child(allocator, arguments, -1, result, sizeof *result, &status) < 0) {
        snprintf(what, sizeof what, "the child could not be started: %s", strerror(errno));
    } else {
        result->version[sizeof result->version - 1] = '\0';
        if (result->status == BENCH_DONE && status == 0)
            return 0;
        describe_failure(result, status, what, sizeof what);
    }
    complain("bench %s: %s, allocator %s: %s", bench->name, bench->case_name(index),
             allocator->label, what);
    return -1;
}

/* All runs of one case; `run` -1 is the warm-up.  Returns the exit code so far. */
static int run_case(const struct bench *bench, struct bench_report *report, size_t place)
{
    int code = EXIT_GOOD;
    for (int run = bench->warm_up ? -1 : 0; run < report->runs; run++) {
        for (size_t i = 0; i < report->allocators->count; i++) {
            struct bench_result result = {0};
            if (*bench_failed(report, place, i))
                continue;
            if (run_once(bench, report, report->cases[place], &report->allocators->items[i],
                         &result) < 0) {
                *bench_failed(report, place, i) = true;
                code = EXIT_FAILED;
                continue;
            }
            if (!report->versions[i])
                report->versions[i] = strdup(result.version);
            if (run >= 0)
                bench_runs(report, place, i)[run] = result;
        }
    }
    return code;
}

static int run_all(const struct bench *bench, struct bench_report *report)
{
    bool terminal = isatty(STDERR_FILENO);
    int code = EXIT_GOOD;
    for (size_t place = 0; place < report->case_count; place++) {
        fprintf(stderr, "%sbench: %s: %s (%zu of %zu)%s", terminal ? "\r" : "", bench->name,
                bench->case_name(report->cases[place]), place + 1, report->case_count,
                terminal ? "\033[K" : "\n");
        fflush(stderr);
        if (run_case(bench, report, place) != EXIT_GOOD)
            code = EXIT_FAILED;
    }
    if (terminal)
        fputs("\r\033[K", stderr);
    return code;
}

/* ---- results ---- */

double bench_median(const struct bench_report *report, size_t place, size_t allocator,
                    double (*value)(const struct bench_result *))
{
    double values[report->runs];
    if (*bench_failed(report, place, allocator))
        return NAN;
    for (int run = 0; run < report->runs; run++)
        values[run] = value(&bench_runs(report, place, allocator)[run]);
    return spread_of(values, report->runs).median;
}

double bench_best_peer(const struct bench_report *report, size_t place,
                       double (*value)(const struct bench_result *))
{
    double best = NAN;
    for (size_t i = 0; i < report->allocators->count; i++) {
        if (!report->allocators->items[i].peer)
            continue;
        double median = bench_median(report, place, i, value);
        if (isnan(best) || median < best)
            best = median;
    }
    return best;
}

/* An allocator that failed in a case has no entry for it. */
static int write_json(const struct bench *bench, const struct bench_report *report,
                      const char *path)
{
    json_t *all = json_object(), *results = json_array();
    for (size_t place = 0; place < report->case_count; place++) {
        for (size_t i = 0; i < report->allocators->count; i++) {
            if (*bench_failed(report, place, i))
                continue;
            json_t *runs = json_array();
            for (int run = 0; run < report->runs; run++)
                json_array_append_new(runs, bench->json_run(&bench_runs(report, place, i)[run]));
            json_array_append_new(results,
                                  json_pack("{s:s,s:s,s:o}", "operation",
                                            bench->case_name(report->cases[place]), "allocator",
                                            report->allocators->items[i].label, "runs", runs));
        }
    }
    json_object_set_new(all, "machine", machine_json(report->allocators, report->versions));
    json_object_set_new(all, "bench", json_string(bench->name));
    json_object_set_new(all, "results", results);
    return output_write_json(all, path);
}

static int prepare_report(struct bench_report *report)
{
    size_t pairs = report->case_count * report->allocators->count;
    report->failed = calloc(pairs, sizeof *report->failed);
    report->results = calloc(pairs * (size_t)report->runs, sizeof *report->results);
    report->versions = calloc(report->allocators->count, sizeof *report->versions);
    return report->failed && report->results && report->versions ? 0 : -1;
}

static void release_report(struct bench_report *report)
{
    for (size_t i = 0; report->versions && i < report->allocators->count; i++)
        free(report->versions[i]);
    free(report->cases);
    free(report->failed);
    free(report->results);
    free(report->versions);
}

static int run_bench(const struct bench *bench, const struct options *options,
                     const struct replay_list *list)
{
    struct bench_report report = {
        .allocators = list, .settings = options->settings, .runs = (int)options->runs};
    int code = EXIT_USAGE;
    if (choose_cases(bench, options->only, &report) == 0 &&
        (!options->json || output_is_possible(options->json))) {
        if (prepare_report(&report) < 0) {
            complain("bench: out of memory");
            code = EXIT_FAILED;
        } else {
            code = run_all(bench, &report);
            bench->print(&report, stdout);
            if (options->json && write_json(bench, &report, options->json) < 0)
                code = EXIT_FAILED;
        }
    }
    release_report(&report);
    return code;
}

/* The floor is no allocator: these comparisons are of allocators alone. */
static int check_list(const struct bench *bench, const struct replay_list *list)
{
    char message[256];
    if (!replay_list_agrees(list, false, message, sizeof message)) {
        complain("bench %s: %s", bench->name, message);
        return -1;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != KIND_FLOOR)
            continue;
        complain("bench %s: \"%s\" is no allocator; only slate replay has the floor", bench->name,
                 list->items[i].label);
        return -1;
    }
    return 0;
}

static int help(void)
{
    puts("usage: slate bench NAME [OPTION]...\n"
         "Compares allocators in small things (slate bench NAME --help says more):\n"
         "  micro       nanoseconds of small operations\n"
         "  contention  many threads that allocate and free at once\n"
         "  append      append buffers: peaks, copies, short appends\n"
         "  idle        scratch of threads that wait: what they hold, what a round costs");
    return EXIT_GOOD;
}

int command_bench(int argc, char **argv)
{
    if (argc < 2) {
        complain("bench: a comparison is missing; slate bench --help lists them");
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    const struct bench *bench = bench_find(argv[1]);
    if (!bench) {
        complain("bench: unknown comparison \"%s\"; slate bench --help lists them", argv[1]);
        return EXIT_USAGE;
    }
    struct options options = {.runs = 5,
                              .settings = {.milliseconds = 20, .threads = 8, .operations = 500000}};
    if (bench->settings.milliseconds)
        options.settings.milliseconds = bench->settings.milliseconds;
    if (bench->settings.threads)
        options.settings.threads = bench->settings.threads;
    if (bench->settings.operations)
        options.settings.operations = bench->settings.operations;
    int code = parse_options(bench, argc - 1, argv + 1, &options);
    if (code >= 0)
        return code;
    char message[PATH_MAX + 256];
    struct replay_list list;
    code = EXIT_USAGE;
    if (replay_list_parse(options.with, bench->all ? bench->all : all_allocators, &list, message,
                          sizeof message) < 0)
        complain("bench %s: %s", bench->name, message);
    else if (check_list(bench, &list) == 0)
        code = run_bench(bench, &options, &list);
    replay_list_free(&list);
    return code;
}
