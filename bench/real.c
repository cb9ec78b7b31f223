/* real.c - `slate real`: compares allocators on whole programs.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "real.h"

#include "child.h"
#include "commands.h"
#include "launch.h"
#include "machine.h"
#include "output.h"
#include "run_library.h"
#include "touch.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNS_DEFAULT = 3,
    RUNS_MAX = 1000,
    SECONDS_DEFAULT = 600,
    SECONDS_MAX = 86400,
    REPEATS_MAX = 50
};

/* A short program is repeated within a run until it has taken about so long. */
static const double least_seconds = 0.5;

static const char all_allocators[] = "glibc,slate:shared,slate:switch,found";

static const char help_text[] =
    "usage: slate real [OPTION]... -- COMMAND [ARGUMENT]...\n"
    "       slate real [OPTION]... --programs FILE\n"
    "Runs whole programs on several allocators and compares time, memory and faults.\n"
    "\n"
    "  --programs FILE   a program a line, fields separated by tabs: name; what must come out the\n"
    "                    same on all allocators: -, stdout or a file; directory; NAME=VALUE for\n"
    "                    the environment; the words of the command\n"
    "  --with LIST       allocators, as slate replay has them, without floor and call\n"
    "                    (default: glibc,slate:shared,slate:switch,found)\n"
    "  --base NAME       the allocator that ratios are taken against (default: glibc, else the "
    "first)\n"
    "  --runs N          timed runs of each, after a warm-up of the first (default: 3)\n"
    "  --timeout N       seconds after which a run is ended and has failed (default: 600)\n"
    "  --touch WHEN      touch as much memory as needed before all runs or none (default: all)\n"
    "  --json FILE       write all runs as JSON\n"
    "  --table FILE      write the machine and all tables, as text\n"
    "  -h, --help        print this and stop\n";

struct options {
    const char *with, *base, *json, *table, *programs;
    long runs, seconds;
    bool touch;
};

/* ---- options ---- */

/* Returns 0; or -1 after a complaint. */
static int parse_number(const char *option, const char *text, long most, long *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 1 || number > most) {
        complain("real: %s \"%s\": allowed is 1 to %ld", option, text, most);
        return -1;
    }
    *value = number;
    return 0;
}

static int parse_touch(const char *text, bool *touch)
{
    *touch = strcmp(text, "all") == 0;
    if (*touch || strcmp(text, "none") == 0)
        return 0;
    complain("real: --touch \"%s\": allowed is all or none", text);
    return -1;
}

/* Returns -1 to go on, or the exit code. */
static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"with", required_argument, NULL, 'w'},     {"base", required_argument, NULL, 'b'},
        {"runs", required_argument, NULL, 'r'},     {"json", required_argument, NULL, 'j'},
        {"table", required_argument, NULL, 'T'},    {"touch", required_argument, NULL, 't'},
        {"programs", required_argument, NULL, 'p'}, {"timeout", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int option, bad = 0;
    opterr = 0;
    for (int at = optind; bad == 0 && (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1;
         at = optind) {
        switch (option) {
        case 'w':
            options->with = optarg;
            break;
        case 'b':
            options->base = optarg;
            break;
        case 'r':
            bad = parse_number("--runs", optarg, RUNS_MAX, &options->runs);
            break;
        case 's':
            bad = parse_number("--timeout", optarg, SECONDS_MAX, &options->seconds);
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'T':
            options->table = optarg;
            break;
        case 'p':
            options->programs = optarg;
            break;
        case 't':
            bad = parse_touch(optarg, &options->touch);
            break;
        case 'h':
            fputs(help_text, stdout);
            return EXIT_GOOD;
        case ':':
            complain("real: option %s wants a value", argv[optind - 1]);
            return EXIT_USAGE;
        default:
            complain("real: unknown option \"%s\"; slate real --help lists them", argv[at]);
            return EXIT_USAGE;
        }
    }
    return bad ? EXIT_USAGE : -1;
}

/* ---- allocators ---- */

/* Whole programs reach slate through its library alone.  Returns 0; or -1 after a complaint. */
static int choose_allocators(const char *with, struct replay_list *list)
{
    char message[PATH_MAX + 256], library[PATH_MAX] = "";
    if (replay_list_parse(with, all_allocators, list, message, sizeof message) < 0) {
        complain("real: %s", message);
        return -1;
    }
    for (size_t i = 0; i < list->count; i++) {
        struct replay_allocator *item = &list->items[i];
        if (item->kind == KIND_FLOOR || item->kind >= KIND_CALL) {
            complain("real: \"%s\" is no malloc for whole programs", item->label);
            return -1;
        }
        if (item->kind != KIND_SLATE)
            continue;
        if (!library[0] && run_find_library(library, message, sizeof message) < 0) {
            complain("real: allocator \"%s\": %s", item->label, message);
            return -1;
        }
        item->kind = KIND_MALLOC;
        memcpy(item->library, library, sizeof library);
    }
    return 0;
}

static int choose_base(const struct options *options, struct real_report *report)
{
    int base = replay_list_find(report->allocators, options->base ? options->base : "glibc");
    if (base < 0 && options->base) {
        complain("real: --base \"%s\" is not among the allocators", options->base);
        return -1;
    }
    report->base = base < 0 ? 0 : (size_t)base;
    return 0;
}

struct answer {
    bool right;
    char version[CHILD_VERSION_BYTES];
};

/* slate real-child LIBRARY: started by real with the result page as file; tells who malloc is. */
int command_real_child(int argc, char **argv)
{
    struct answer *answer = argc == 2 ? child_map_result(sizeof *answer) : NULL;
    if (!answer) {
        static const char text[] = "slate: real-child is for slate real alone\n";
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
        return EXIT_USAGE;
    }
    answer->right = child_find_malloc(answer->version, argv[1]);
    return EXIT_GOOD;
}

/* Whether each allocator is malloc where it is preloaded; the programs would not tell. */
static int check_allocators(struct real_report *report)
{
    for (size_t i = 0; i < report->allocators->count; i++) {
        const struct replay_allocator *allocator = &report->allocators->items[i];
        const char *const arguments[] = {"real-child", allocator->library, NULL};
        struct answer answer = {0};
        char what[128] = "";
        int status = 0;
        if (launch_child(allocator, arguments, -1, &answer, sizeof answer, &status) < 0)
            snprintf(what, sizeof what, "%s", strerror(errno));
        else if (status != 0)
            launch_describe_end(status, what, sizeof what);
        else if (!answer.right)
            snprintf(what, sizeof what, "its library was not loaded or has no malloc");
        if (what[0]) {
            complain("real: allocator %s: %s", allocator->label, what);
            return -1;
        }
        answer.version[sizeof answer.version - 1] = '\0';
        report->versions[i] = strdup(answer.version);
    }
    return 0;
}

/* ---- the runs ---- */

struct round {
    const struct options *options;
    struct real_report *report;
    size_t program;
    uint64_t largest_kb;
    int repeats;   /* how often the program runs within a run */
    int reference; /* the allocator whose output others must have; -1: none has run yet */
    uint64_t sum;  /* of that output */
    bool any_failed;
};

static void step(const struct round *round, const char *allocator, int run)
{
    bool terminal = isatty(STDERR_FILENO);
    char what[32] = "warm-up";
    if (run >= 0)
        snprintf(what, sizeof what, "run %d of %ld", run + 1, round->options->runs);
    fprintf(stderr, "%sreal: %s (%zu of %zu): %s%s%s%s", terminal ? "\r" : "",
            round->report->programs->items[round->program].name, round->program + 1,
            round->report->programs->count, what, terminal ? ": " : "", terminal ? allocator : "",
            terminal ? "\033[K" : "\n");
    fflush(stderr);
}

/* Whether the output is the reference's; the first is the reference. */
static bool is_same(struct round *round, size_t allocator, uint64_t sum, char *what, size_t room)
{
    if (round->reference < 0) {
        round->reference = (int)allocator;
        round->sum = sum;
    }
    if (round->sum == sum)
        return true;
    snprintf(what, room, "what it put out is not what it put out on %s",
             round->report->allocators->items[round->reference].label);
    return false;
}

/* Runs the program as often as a run wants: means of all times and counts, the largest peak.
 * Returns 0; or -1 with what was wrong in `what`. */
static int run_repeated(struct round *round, size_t allocator, struct real_result *result,
                        char *what, size_t room)
{
    const struct real_report *report = round->report;
    for (int i = 0; i < round->repeats; i++) {
        struct real_result one = {0};
        if (real_run(&report->programs->items[round->program],
                     &report->allocators->items[allocator], round->options->seconds, &one, what,
                     room) < 0 ||
            !is_same(round, allocator, one.sum, what, room))
            return -1;
        result->wall_seconds += one.wall_seconds / round->repeats;
        result->user_seconds += one.user_seconds / round->repeats;
        result->system_seconds += one.system_seconds / round->repeats;
        result->minor_faults += one.minor_faults;
        result->major_faults += one.major_faults;
        if (one.resident_kb > result->resident_kb)
            result->resident_kb = one.resident_kb;
    }
    result->minor_faults /= (uint64_t)round->repeats;
    result->major_faults /= (uint64_t)round->repeats;
    return 0;
}

/* Runs every allocator once; `run` is -1 for the warm-up, which is the first one's alone.  Each
 * round begins with another, as what comes first may find the machine in another state. */
static void run_round(struct round *round, int run)
{
    struct real_report *report = round->report;
    size_t count = report->allocators->count;
    const struct real_program *program = &report->programs->items[round->program];
    double longest = 0;
    for (size_t k = 0; k < count; k++) {
        size_t i = (k + (size_t)(run < 0 ? 0 : run)) % count;
        const struct replay_allocator *allocator = &report->allocators->items[i];
        struct real_result result = {0};
        char what[512];
        if (*real_failed(report, round->program, i) || (run < 0 && k > 0))
            continue;
        if (isatty(STDERR_FILENO) || k == 0)
            step(round, allocator->label, run);
        if (round->options->touch)
            touch_memory(round->largest_kb / 4 * 5);
        if (run_repeated(round, i, &result, what, sizeof what) < 0) {
            complain("real: %s, allocator %s: %s", program->name, allocator->label, what);
            *real_failed(report, round->program, i) = true;
            round->any_failed = true;
            continue;
        }
        if (result.resident_kb > round->largest_kb)
            round->largest_kb = result.resident_kb;
        if (run >= 0)
            real_runs(report, round->program, i)[run] = result;
        longest = result.wall_seconds > longest ? result.wall_seconds : longest;
    }
    if (run < 0 && longest > 0)
        round->repeats = longest * REPEATS_MAX > least_seconds ? (int)(least_seconds / longest) + 1
                                                               : REPEATS_MAX;
}

static int run_all(const struct options *options, struct real_report *report)
{
    int code = EXIT_GOOD;
    for (size_t program = 0; program < report->programs->count; program++) {
        struct round round = {.options = options,
                              .report = report,
                              .program = program,
                              .repeats = 1,
                              .reference = -1};
        for (int run = -1; run < report->runs; run++)
            run_round(&round, run);
        if (isatty(STDERR_FILENO))
            fputs("\r\033[K", stderr);
        real_print_program(report, program, stdout);
        fflush(stdout);
        if (round.any_failed)
            code = EXIT_FAILED;
    }
    if (report->programs->count > 1)
        real_print_summary(report, stdout);
    return code;
}

/* ---- results ---- */

static int write_table(const struct real_report *report, const char *path)
{
    struct output output;
    if (output_begin(&output, path) < 0)
        return -1;
    machine_print(report->allocators, report->versions, output.file);
    fprintf(output.file,
            "\nMedians of %d runs; RSS is the peak of the largest process of a run; base: %s; "
            "best: the best\nof the others than slate in each column.\n",
            report->runs, report->allocators->items[report->base].label);
    for (size_t program = 0; program < report->programs->count; program++)
        real_print_program(report, program, output.file);
    if (report->programs->count > 1)
        real_print_summary(report, output.file);
    return output_end(&output, true);
}

static int compare(const struct options *options, struct real_report *report)
{
    size_t pairs = report->programs->count * report->allocators->count;
    int code = EXIT_FAILED;
    report->failed = calloc(pairs, sizeof *report->failed);
    report->results = calloc(pairs * (size_t)report->runs, sizeof *report->results);
    report->versions = calloc(report->allocators->count, sizeof *report->versions);
    if (!report->failed || !report->results || !report->versions)
        complain("real: out of memory");
    else if (check_allocators(report) == 0)
        code = run_all(options, report);
    else
        pairs = 0;
    if (pairs && options->json) {
        json_t *all = real_json(report);
        json_object_set_new(all, "machine", machine_json(report->allocators, report->versions));
        if (output_write_json(all, options->json) < 0)
            code = EXIT_FAILED;
    }
    if (pairs && options->table && write_table(report, options->table) < 0)
        code = EXIT_FAILED;
    for (size_t i = 0; report->versions && i < report->allocators->count; i++)
        free(report->versions[i]);
    free(report->versions);
    free(report->results);
    free(report->failed);
    return code;
}

/* Returns 0; or -1 after a complaint. */
static int choose_programs(const struct options *options, char **command,
                           struct real_programs *programs)
{
    char message[PATH_MAX + 256] = "out of memory";
    if (options->programs && *command)
        snprintf(message, sizeof message, "a command beside --programs");
    else if (!options->programs && !*command)
        snprintf(message, sizeof message, "a command is missing; slate real --help says more");
    else if ((options->programs
                  ? real_read_programs(options->programs, programs, message, sizeof message)
                  : real_one_program(command, programs)) == 0)
        return 0;
    complain("real: %s", message);
    return -1;
}

int command_real(int argc, char **argv)
{
    struct options options = {.runs = RUNS_DEFAULT, .seconds = SECONDS_DEFAULT, .touch = true};
    int code = parse_options(argc, argv, &options);
    if (code >= 0)
        return code;
    struct replay_list list = {0};
    struct real_programs programs = {0};
    struct real_report report = {
        .allocators = &list, .programs = &programs, .runs = (int)options.runs};
    code = EXIT_USAGE;
    if (choose_programs(&options, argv + optind, &programs) == 0 &&
        choose_allocators(options.with, &list) == 0 && choose_base(&options, &report) == 0 &&
        (!options.json || output_is_possible(options.json)) &&
        (!options.table || output_is_possible(options.table)))
        code = compare(&options, &report);
    replay_list_free(&list);
    real_free_programs(&programs);
    return code;
}
