/* replay.c - `slate replay`: compares allocators on recorded traces.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "commands.h"
#include "machine.h"
#include "output.h"
#include "replay_encode.h"
#include "replay_report.h"
#include "replay_run.h"
#include "touch.h"

#include "../lib/trace.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum touch { TOUCH_ALL, TOUCH_FIRST, TOUCH_NONE };
enum { RUNS_DEFAULT = 5, RUNS_MAX = 1000 };

struct options {
    const char *with;
    const char *base;
    const char *json;
    const char *table;
    int runs;
    enum touch touch;
    bool check_all;
    bool as_regions;
    bool list;
};

struct progress {
    bool terminal;
    size_t done, total;
};

static const char all_allocators[] = "floor,slate:never,slate:always,slate:switch,slate:shared,"
                                     "glibc,glibc+thp,found";

static const char all_regions[] = "floor,region:never,region:switch,region:shared,built";

static const char help_text[] =
    "usage: slate replay [OPTION]... TRACE...\n"
    "Replays recorded traces on several allocators and compares time, memory and faults.\n"
    "\n"
    "  --with LIST       allocators, separated by commas: slate[:POLICY][:NAME=VALUE]...,\n"
    "                    call[:POLICY][:NAME=VALUE]..., glibc, glibc+thp, mimalloc, jemalloc,\n"
    "                    tcmalloc, floor, path:FILE; LABEL= before one names it; found: the known\n"
    "                    libraries that are installed; all: the default, slate's policies, glibc\n"
    "                    and what is found\n"
    "  --base NAME       the allocator that ratios are taken against (default: glibc, else the "
    "first)\n"
    "  --runs N          timed runs of each, after one warm-up (default: 5)\n"
    "  --json FILE       write all runs as JSON\n"
    "  --table FILE      write the machine and one table of everything, as text\n"
    "  --touch WHEN      touch as much memory as needed before all runs, the first or none\n"
    "                    (default: all)\n"
    "  --check           check every byte of every block (slow)\n"
    "  --as-region       the objects of each marked phase of the trace end together: compare "
    "regions,\n"
    "                    which are region[:POLICY][:NAME=VALUE]... (slate's), apr, obstack, slab "
    "(as\n"
    "                    LLVM has them), talloc; built: those that this program was built with; "
    "the\n"
    "                    base is obstack\n"
    "  --list            print the allocators and stop\n"
    "  -h, --help        print this and stop\n";

/* Decimal from `least` to `most`; -1 otherwise. */
static long parse_number(const char *text, long least, long most)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return -1;
    return value;
}

/* Returns -1 to go on, or the exit code. */
static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"with", required_argument, NULL, 'w'},
                                          {"base", required_argument, NULL, 'b'},
                                          {"runs", required_argument, NULL, 'r'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"table", required_argument, NULL, 'T'},
                                          {"touch", required_argument, NULL, 't'},
                                          {"check", no_argument, NULL, 'c'},
                                          {"as-region", no_argument, NULL, 'R'},
                                          {"list", no_argument, NULL, 'l'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        switch (option) {
        case 'w':
            options->with = optarg;
            break;
        case 'b':
            options->base = optarg;
            break;
        case 'r':
            options->runs = (int)parse_number(optarg, 1, RUNS_MAX);
            if (options->runs < 0) {
                complain("replay: --runs \"%s\": allowed is 1 to %d", optarg, RUNS_MAX);
                return EXIT_USAGE;
            }
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'T':
            options->table = optarg;
            break;
        case 't':
            if (strcmp(optarg, "all") == 0) {
                options->touch = TOUCH_ALL;
            } else if (strcmp(optarg, "first") == 0) {
                options->touch = TOUCH_FIRST;
            } else if (strcmp(optarg, "none") == 0) {
                options->touch = TOUCH_NONE;
            } else {
                complain("replay: --touch \"%s\": allowed is all, first or none", optarg);
                return EXIT_USAGE;
            }
            break;
        case 'c':
            options->check_all = true;
            break;
        case 'R':
            options->as_regions = true;
            break;
        case 'l':
            options->list = true;
            break;
        case 'h':
            fputs(help_text, stdout);
            return EXIT_GOOD;
        case ':':
            complain("replay: option %s wants a value", argv[optind - 1]);
            return EXIT_USAGE;
        default:
            complain("replay: unknown option \"%s\"; slate replay --help lists them",
                     argv[optind - 1]);
            return EXIT_USAGE;
        }
    }
    return -1;
}

/* ---- progress, on stderr ---- */

static void progress_step(struct progress *progress, const char *trace, const char *what)
{
    enum { WIDTH = 30 };
    if (progress->terminal) {
        int filled = progress->total ? (int)(progress->done * WIDTH / progress->total) : 0;
        fprintf(stderr, "\r[%.*s%*s] %zu/%zu %.24s %.24s\033[K", filled,
                "##############################", WIDTH - filled, "", progress->done,
                progress->total, trace, what);
    } else {
        fprintf(stderr, "replay: %s: %s\n", trace, what);
    }
    fflush(stderr);
}

/* Takes the bar away, so that a line of text can come. */
static void progress_clear(const struct progress *progress)
{
    if (progress->terminal)
        fputs("\r\033[K", stderr);
}

/* ---- the runs ---- */

struct round {
    const struct options *options;
    struct replay_report *report;
    const struct replay_trace *trace;
    const char *path;
    size_t index; /* of the trace */
    uint64_t largest_kb;
    bool any_failed;
};

/* Runs every allocator once; `run` is -1 for the warm-up. */
static void run_round(struct round *round, int run, struct progress *progress)
{
    struct replay_report *report = round->report;
    const char *name = report->trace_names[round->index];
    for (size_t i = 0; i < report->allocators->count; i++) {
        const struct replay_allocator *allocator = &report->allocators->items[i];
        struct replay_result result = {0};
        char message[768];
        progress->done++;
        if (*replay_failed(report, round->index, i))
            continue;
        if (progress->terminal)
            progress_step(progress, name, allocator->label);
        if (round->options->touch == TOUCH_ALL ||
            (round->options->touch == TOUCH_FIRST && run < 0 && i == 0))
            touch_memory(round->largest_kb);
        if (replay_run(round->trace, round->path, name, allocator, round->options->check_all,
                       &result, message, sizeof message) < 0) {
            progress_clear(progress);
            complain("%s", message);
            *replay_failed(report, round->index, i) = true;
            round->any_failed = true;
            continue;
        }
        if (run < 0) {
            if (result.resident_kb > round->largest_kb)
                round->largest_kb = result.resident_kb;
            if (!report->versions[i])
                report->versions[i] = strdup(result.version);
        } else {
            replay_runs(report, round->index, i)[run] = result;
        }
    }
}

/* Returns the exit code so far. */
static int replay_trace(const struct options *options, struct replay_report *report, size_t index,
                        const char *path, struct progress *progress)
{
    char message[768];
    struct replay_trace trace;
    const char *name = report->trace_names[index];
    progress_step(progress, name, "decoding");
    if (replay_encode(path, options->as_regions, &trace, message, sizeof message) < 0) {
        progress_clear(progress);
        complain("%s", message);
        return EXIT_USAGE;
    }
    if (trace.header->cut_short) {
        progress_clear(progress);
        complain("%s: warning: cut short, used up to its %llu allocation calls", path,
                 (unsigned long long)trace.header->events);
    }
    struct round round = {.options = options,
                          .report = report,
                          .trace = &trace,
                          .path = path,
                          .index = index,
                          .largest_kb = trace.header->peak_live_bytes / 1024 * 5 / 4};
    for (int run = -1; run < options->runs; run++) {
        char what[32] = "warm-up";
        if (run >= 0)
            snprintf(what, sizeof what, "run %d of %d", run + 1, options->runs);
        if (!progress->terminal)
            progress_step(progress, name, what);
        run_round(&round, run, progress);
    }
    replay_trace_close(&trace);
    progress_clear(progress);
    replay_print_trace(report, index, stdout);
    fflush(stdout);
    return round.any_failed ? EXIT_FAILED : EXIT_GOOD;
}

/* A trace's name: its file's, without directory and ".slt". */
static char *trace_name(const char *path)
{
    const char *base = strrchr(path, '/');
    char *name = strdup(base ? base + 1 : path);
    if (!name)
        return NULL;
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".slt") == 0)
        name[length - 4] = '\0';
    return name;
}

static bool prepare_report(struct replay_report *report, char **paths)
{
    size_t pairs = report->trace_count * report->allocators->count;
    report->trace_names = calloc(report->trace_count, sizeof *report->trace_names);
    report->failed = calloc(pairs, sizeof *report->failed);
    report->results = calloc(pairs * (size_t)report->runs, sizeof *report->results);
    report->versions = calloc(report->allocators->count, sizeof *report->versions);
    if (!report->trace_names || !report->failed || !report->results || !report->versions)
        return false;
    for (size_t i = 0; i < report->trace_count; i++)
        if (!(report->trace_names[i] = trace_name(paths[i])))
            return false;
    return true;
}

static void release_report(struct replay_report *report)
{
    for (size_t i = 0; report->trace_names && i < report->trace_count; i++)
        free(report->trace_names[i]);
    for (size_t i = 0; report->versions && i < report->allocators->count; i++)
        free(report->versions[i]);
    free(report->trace_names);
    free(report->failed);
    free(report->results);
    free(report->versions);
}

/* Whether every trace can be opened and begins as one, before time is spent on the first. */
static bool check_traces(char **paths, size_t count)
{
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        struct slate_trace_reader *reader;
        if (slate_trace_open(&reader, paths[i]) < 0) {
            complain("%s", slate_trace_message(reader));
            good = false;
        }
        slate_trace_close(reader);
    }
    return good;
}

static int choose_base(const struct options *options, struct replay_report *report)
{
    int base = replay_list_find(report->allocators, options->base         ? options->base
                                                    : options->as_regions ? "obstack"
                                                                          : "glibc");
    if (base < 0 && options->base) {
        complain("replay: --base \"%s\" is not among the allocators", options->base);
        return -1;
    }
    report->base = base < 0 ? 0 : (size_t)base;
    return 0;
}

static int write_table(const struct replay_report *report, const char *path)
{
    struct output output;
    if (output_begin(&output, path) < 0)
        return -1;
    machine_print(report->allocators, report->versions, output.file);
    fputc('\n', output.file);
    replay_print_all(report, output.file);
    return output_end(&output, true);
}

static int replay_all(const struct options *options, struct replay_report *report, char **paths)
{
    size_t rounds = report->trace_count * (size_t)(options->runs + 1);
    struct progress progress = {.terminal = isatty(STDERR_FILENO),
                                .total = rounds * report->allocators->count};
    int code = EXIT_GOOD;
    for (size_t i = 0; i < report->trace_count; i++) {
        int result = replay_trace(options, report, i, paths[i], &progress);
        if (result == EXIT_USAGE)
            return result;
        if (result != EXIT_GOOD)
            code = result;
    }
    if (report->trace_count > 1)
        replay_print_summary(report, stdout);
    if (options->json && replay_write_json(report, options->json) < 0)
        return EXIT_FAILED;
    if (options->table && write_table(report, options->table) < 0)
        return EXIT_FAILED;
    return code;
}

static void print_list(const struct replay_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        printf("%-16s %s\n", list->items[i].label, list->items[i].library);
}

int command_replay(int argc, char **argv)
{
    struct options options = {.runs = RUNS_DEFAULT};
    int code = parse_options(argc, argv, &options);
    if (code >= 0)
        return code;
    char message[PATH_MAX + 256];
    struct replay_list list;
    const char *all = options.as_regions ? all_regions : all_allocators;
    if (replay_list_parse(options.with, all, &list, message, sizeof message) < 0 ||
        !replay_list_agrees(&list, options.as_regions, message, sizeof message)) {
        complain("replay: %s", message);
        replay_list_free(&list);
        return EXIT_USAGE;
    }
    struct replay_report report = {
        .allocators = &list, .runs = options.runs, .trace_count = (size_t)(argc - optind)};
    code = EXIT_USAGE;
    if (options.list) {
        print_list(&list);
        code = EXIT_GOOD;
    } else if (report.trace_count == 0) {
        complain("replay: a trace is missing; slate replay --help says more");
    } else if (choose_base(&options, &report) == 0 &&
               (!options.json || output_is_possible(options.json)) &&
               (!options.table || output_is_possible(options.table)) &&
               check_traces(argv + optind, report.trace_count)) {
        if (prepare_report(&report, argv + optind)) {
            code = replay_all(&options, &report, argv + optind);
        } else {
            complain("replay: out of memory");
            code = EXIT_FAILED;
        }
        release_report(&report);
    }
    replay_list_free(&list);
    return code;
}
