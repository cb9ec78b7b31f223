/* published.c - counts what the class slices of a recorded compiler run take under the page
 * policies `never`, `always` and `switch`, and compares it with the simulation of the published
 * rule.
 *
 * SPDX-License-Identifier: MIT
 *
 * The simulation knows blocks of up to 16 KiB alone, so here too larger ones are left out.  All of
 * a trace is replayed by one thread.
 */
#include "support.h"

#include "trace.h"

/* What was simulated: faults on small pages and on huge ones. */
struct simulated {
    const char *trace;
    unsigned long never;                     /* small pages */
    unsigned long always;                    /* huge pages */
    unsigned long switch_small, switch_huge; /* both */
};

static const struct simulated simulated[] = {
    {"tsc-small", 35914, 105, 23743, 28},
    {"clang-stl", 12688, 64, 12688, 0},
    {"cc1plus-stl", 2756, 53, 2756, 0},
};

enum { TOLERANCE = 5 /* percent */ };

#define SWITCH_POINT (8 * MIB)
#define SMALL_PAGE ((size_t)4096)
#define HUGE_PAGE (2 * MIB)

/* Objects of the trace by number; NULL: ended, or too large to be counted. */
static char **objects;
static uint64_t object_room;

static void store(uint64_t object, char *block)
{
    if (object >= object_room) {
        uint64_t room = object_room == 0 ? 1 << 20 : object_room * 2;
        while (room <= object)
            room *= 2;
        objects = realloc(objects, room * sizeof *objects);
        REQUIRE(objects != NULL, "no memory for the objects of the trace");
        object_room = room;
    }
    objects[object] = block;
}

static char *allocate(size_t size)
{
    if (size > SLATE_CLASS_MAX)
        return NULL;
    char *block = slate_alloc(size);
    REQUIRE(block != NULL, "slate_alloc(%zu) failed", size);
    memset(block, 1, size);
    return block;
}

static void replay(const char *path)
{
    struct slate_trace_reader *reader;
    struct slate_trace_record record;
    REQUIRE(slate_trace_open(&reader, path) == 0, "%s", slate_trace_message(reader));
    int result;
    while ((result = slate_trace_next(reader, &record)) == 1) {
        switch (record.tag) {
        case SLATE_TRACE_MALLOC:
        case SLATE_TRACE_CALLOC:
        case SLATE_TRACE_ALIGNED:
            store(record.object, allocate(record.size));
            break;
        case SLATE_TRACE_REALLOC: {
            char *block = objects[record.ended];
            if (block != NULL && record.size <= SLATE_CLASS_MAX) {
                block = slate_realloc(block, record.size);
                REQUIRE(block != NULL, "slate_realloc failed");
            } else {
                slate_free(block);
                block = allocate(record.size);
            }
            store(record.object, block);
            break;
        }
        case SLATE_TRACE_FREE:
            slate_free(objects[record.ended]);
            break;
        default:
            break;
        }
    }
    REQUIRE(result == 0, "%s", slate_trace_message(reader));
    slate_trace_close(reader);
}

/* Pages that the class slices take when everything below `small_end` of each is on small pages. */
static void count_pages(const struct slate_stats *stats, size_t small_end, unsigned long *small,
                        unsigned long *huge)
{
    *small = *huge = 0;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        size_t units = stats->classes[i].units;
        size_t on_small = units < small_end ? units : small_end;
        *small += (on_small + SMALL_PAGE - 1) / SMALL_PAGE;
        *huge += (units - on_small + HUGE_PAGE - 1) / HUGE_PAGE;
    }
}

static bool agrees(const char *what, unsigned long counted, unsigned long expected)
{
    unsigned long apart = counted > expected ? counted - expected : expected - counted;
    bool good = apart * 100 <= expected * TOLERANCE;
    printf("    %-30s %8lu, simulated %8lu (%+.1f %%)%s\n", what, counted, expected,
           expected != 0 ? ((double)counted / (double)expected - 1) * 100 : 0,
           good ? "" : "  NOT within 5 %");
    return good;
}

static const char *path;
static const struct simulated *expected;

static void run(void *context)
{
    const char *policy = context;
    replay(path);
    struct slate_stats stats = test_stats();
    REQUIRE(stats.large == 0 && stats.own_mappings == 0, "a large block was counted");
    REQUIRE(stats.free_runs == 0, "units lie in the pool instead of class slices");
    unsigned long small, huge;
    printf("  policy %s\n", policy);
    bool good = true;
    if (strcmp(policy, "never") == 0) {
        count_pages(&stats, SIZE_MAX, &small, &huge);
        good &= agrees("small pages", small, expected->never);
        good &= agrees("huge pages", huge, 0);
    } else if (strcmp(policy, "always") == 0) {
        count_pages(&stats, 0, &small, &huge);
        good &= agrees("small pages", small, 0);
        good &= agrees("huge pages", huge, expected->always);
    } else {
        count_pages(&stats, SWITCH_POINT, &small, &huge);
        good &= agrees("small pages", small, expected->switch_small);
        good &= agrees("huge pages", huge, expected->switch_huge);
    }
    REQUIRE(good, "%s, policy %s: the class slices differ from the simulation", expected->trace,
            policy);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: published FOLDER-WITH-TRACES\n", stderr);
        return TEST_USAGE;
    }
    bool passed = true;
    for (unsigned i = 0; i < sizeof simulated / sizeof *simulated; i++) {
        char name[4096];
        expected = &simulated[i];
        snprintf(name, sizeof name, "%s/%s.slt", argv[1], expected->trace);
        path = name;
        printf("%s\n", expected->trace);
        for (unsigned policy = 0; policy < 3; policy++)
            passed &= test_with_policy(test_policies[policy], run,
                                       (void *)(uintptr_t)test_policies[policy]);
    }
    return passed ? TEST_PASSED : TEST_FAILED;
}
