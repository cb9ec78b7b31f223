/* tests/check_stats.c - what slate_stats says: sums that hold, memory explained, reports at exit.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "stats.h"

#include <pthread.h>
#ifdef WITH_JANSSON
#include <jansson.h>
#endif

#include "arena.h"
#include "check_support.h"
#include "large.h"
#include "pool.h"
#include "tunables.h"

static enum slatei_policy policy;

static struct slate_stats stats_now(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats;
}

/* The equations of slate.h. */
static struct slate_stats check_equations(void)
{
    struct slate_stats s = stats_now();
    size_t in_use = s.large, free_list = 0, free_unit = 0, tails = 0;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of = &s.classes[i];
        require_equal(of->size, slate_class_size_(i));
        require_equal(of->units, of->in_use + of->free_list + of->free_unit + of->tails);
        require_equal(of->in_use % of->size, 0);
        require_equal(of->free_list % of->size, 0);
        require_equal(of->free_unit % of->size, 0);
        in_use += of->in_use;
        free_list += of->free_list;
        free_unit += of->free_unit;
        tails += of->tails;
    }
    require_equal(s.in_use, in_use);
    require_equal(s.free_list, free_list);
    require_equal(s.free_unit, free_unit);
    require_equal(s.tails, tails);
    require_equal(s.resident, s.in_use + s.free_list + s.free_unit + s.tails + s.free_runs +
                                  s.above_top + s.own_mappings + s.tables - s.absent);
    /* The pool and the slices are their blocks, free runs and what is above them. */
    require_equal(s.committed,
                  s.in_use + s.free_list + s.free_unit + s.tails + s.free_runs + s.above_top);
    require_at_least(s.reserved, s.committed);
    require_at_most(s.huge, s.resident);
    require_at_least(s.units_taken, s.units_returned);
    return s;
}

/* ---- random work */

#define SLOTS 4000

struct work {
    void *block[SLOTS];
    size_t size[SLOTS];
    unsigned bits; /* of sizes */
    size_t in_use; /* bytes of the blocks' classes and granules */
};

static struct work work;

static void step(struct work *at, struct random *random)
{
    size_t k = below(random, SLOTS);
    if (at->block[k] != NULL) {
        at->in_use -= slate_usable_size(at->block[k]);
        slate_free(at->block[k]);
        at->block[k] = NULL;
    }
    if (below(random, 5) != 0) {
        at->size[k] = skewed(random, at->bits);
        require((at->block[k] = slate_alloc(at->size[k])) != NULL);
        memset(at->block[k], 1, at->size[k]);
        at->in_use += slate_usable_size(at->block[k]);
    }
}

static void end_all(struct work *at)
{
    for (size_t k = 0; k < SLOTS; k++) {
        slate_free(at->block[k]);
        at->block[k] = NULL;
    }
    at->in_use = 0;
}

static void equations(void)
{
    slatei_settings.policy = policy;
    struct random random = {seed_of_run() + policy};
    struct slate_stats s = stats_now();
    require(all_zero(&s, sizeof s)); /* before the first allocation */
    work.bits = 17;
    for (unsigned i = 0; i < (slow_here() ? 4000u : 40000u); i++) {
        step(&work, &random);
        if (i % 1000 == 0) {
            s = check_equations();
            require_equal(s.in_use, work.in_use);
            require_equal(s.own_mappings, 0);
        }
        if (below(&random, 8000) == 0)
            slate_purge();
    }
    end_all(&work);
    require_equal(check_equations().in_use, 0);
    slate_purge();
    s = check_equations();
    require_equal(s.in_use, 0);
    require_equal(s.free_list, 0);
    if (policy == SLATEI_SHARED) {
        require_equal(s.free_unit, 0);
        require_equal(s.free_runs, 0);
        require_equal(s.units_taken, s.units_returned);
    }
}

/* Runs a child for each policy. */
static void each_policy(void (*body)(void))
{
    for (policy = SLATEI_NEVER; policy <= SLATEI_SHARED; policy++) {
        struct child_end end;
        run_child(body, &end);
        ck_assert_msg(end.status == 0, "policy %s: status %d: %s", slatei_policy_name(policy),
                      end.status, end.text);
    }
}

START_TEST(equations_hold) { each_policy(equations); }
END_TEST

static void *work_of_thread(void *seed)
{
    struct random random = {(uintptr_t)seed};
    struct work *mine = calloc(1, sizeof *mine);
    require(mine != NULL);
    mine->bits = 14;
    for (unsigned i = 0; i < 5000; i++)
        step(mine, &random);
    end_all(mine);
    free(mine);
    return NULL;
}

static void after_threads(void)
{
    slatei_settings.policy = policy;
    require(slate_alloc(100) != NULL);
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++)
        require_equal(pthread_create(&thread[i], NULL, work_of_thread, (void *)(i + 1)), 0);
    if (!SANITIZED) /* near the truth only: it does not fail */
        for (unsigned i = 0; i < 5; i++)
            stats_now();
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    struct slate_stats s = check_equations();
    require_equal(s.in_use, 112); /* parked arenas have all of theirs in their records */
    require_equal(s.classes[slate_class_of_(100)].in_use, 112);
    require_at_most(s.arenas, 4);
    require_at_least(s.arenas, 2);
}

START_TEST(threads_that_ended) { each_policy(after_threads); }
END_TEST

/* ---- memory explained */

static void check_explained(size_t before, const char *when)
{
    struct slate_stats s = check_equations();
    size_t grown = status_bytes("RssAnon") - before;
    size_t off = s.resident > grown ? s.resident - grown : grown - s.resident;
    if (off * 100 > grown * 3) {
        dprintf(STDERR_FILENO, "%s: grown by %zu, resident %zu\n", when, grown, s.resident);
        require(off * 100 <= grown * 3);
    }
}

static void memory(void)
{
    slatei_settings.policy = policy;
    slatei_settings.switch_bytes = 4 * MIB;
    struct random random = {seed_of_run() + policy};
    memset(&work, 1, sizeof work); /* in memory from the start */
    memset(&work, 0, sizeof work);
    require_equal(stats_now().resident, 0);
    (void)status_bytes("RssAnon");
    size_t before = status_bytes("RssAnon");
    work.bits = 19;
    for (unsigned i = 0; i < 12000; i++)
        step(&work, &random);
    check_explained(before, "after random work");
    for (size_t k = 0; k < SLOTS; k += 2) {
        slate_free(work.block[k]);
        work.block[k] = NULL;
    }
    check_explained(before, "half of it freed");
    slate_purge();
    check_explained(before, "half of it purged");
    work.bits = 9;
    for (unsigned i = 0; i < 60000; i++)
        step(&work, &random);
    check_explained(before, "after work with small blocks");
}

START_TEST(resident_is_explained)
{
    SKIP_UNDER_TOOLS();
    each_policy(memory);
}
END_TEST

/* Mappings of their own count as far as they are in memory. */
static void memory_of_mappings(void)
{
    slatei_settings.policy = policy;
    slatei_settings.slice_bytes = 16 * MIB;
    slatei_settings.arenas = 2;
    require(slate_alloc(1) != NULL);
    size_t size = slatei_reserve.pool_span + 64 * MIB;
    (void)status_bytes("RssAnon");
    size_t before = status_bytes("RssAnon"), resident = stats_now().resident;
    char *block = slate_alloc(size);
    require(block != NULL);
    memset(block, 1, 40 * MIB);
    struct slate_stats s = check_equations();
    require_at_least(s.own_mappings, size);
    size_t grown = status_bytes("RssAnon") - before;
    require_at_least(grown, 40 * MIB);
    require_at_most(s.resident - resident, grown + grown / 33);
    require_at_least(s.resident - resident, grown - grown / 33);
    slate_free(block);
    require_equal(check_equations().own_mappings, 0);
}

START_TEST(mappings_are_explained)
{
    SKIP_UNDER_TOOLS();
    policy = SLATEI_SWITCH;
    in_child(memory_of_mappings);
    policy = SLATEI_NEVER;
    in_child(memory_of_mappings);
}
END_TEST

/* A purge gives back what it says, and what is left is what lives. */
static void purged(void)
{
    slatei_settings.policy = policy;
    slatei_settings.switch_bytes = 4 * MIB;
    struct random random = {seed_of_run() + policy};
    work.bits = 19;
    for (unsigned i = 0; i < 8000; i++)
        step(&work, &random);
    end_all(&work);
    (void)status_bytes("RssAnon");
    size_t before = status_bytes("RssAnon"), resident = stats_now().resident;
    size_t given = slate_purge();
    size_t after = status_bytes("RssAnon");
    require(given > 0);
    require_at_most(given, resident);
    /* Only memory that was there can be given back. */
    require_at_most(given, before - after + MIB);
    require_at_least(given + MIB, before - after);
    require_at_most(slate_purge(), 256 * KIB);
}

START_TEST(purge_tells_the_truth)
{
    SKIP_UNDER_TOOLS();
    each_policy(purged);
}
END_TEST

/* ---- the call */

CHILD_TEST(sizes_of_the_struct)
{
    struct slate_stats whole, part[2];
    require_equal(slate_stats(&whole, 0), EINVAL);
    require(slate_alloc(5000) != NULL);
    errno = 66;
    require_equal(slate_stats(&whole, sizeof whole), 0);
    require_equal(errno, 66);
    require_at_least(whole.in_use, 5000);
    for (size_t size = 1; size <= sizeof whole; size += size < 200 ? 1 : 97) {
        memset(part, 0xee, sizeof part);
        require_equal(slate_stats(part, size), 0);
        size_t known = size < offsetof(struct slate_stats, tables)
                           ? size
                           : offsetof(struct slate_stats, tables);
        require(memcmp(part, &whole, known) == 0);
        require_equal(((unsigned char *)part)[size], 0xee);
    }
    /* A program of a later version: what this one does not know is zero. */
    memset(part, 0xee, sizeof part);
    require_equal(slate_stats(part, sizeof part), 0);
    require(all_zero((char *)part + sizeof whole, sizeof part - sizeof whole));
}

/* ---- at exit */

static const char *form;

static void allocate_and_exit(void)
{
    setenv("SLATE_STATS", form, 1);
    slatei_settings.policy = SLATEI_SHARED;
    for (unsigned i = 0; i < 1000; i++) {
        void *volatile block = slate_alloc(i * 20);
        require(block != NULL);
    }
    exit(0); /* the library tells at exit */
}

static void only_exit(void)
{
    setenv("SLATE_STATS", form, 1);
    exit(0);
}

START_TEST(none_at_exit)
{
    struct child_end end;
    form = "0";
    run_child(allocate_and_exit, &end);
    ck_assert_int_eq(end.status, 0);
    ck_assert_str_eq(end.text, "");
    form = "json";
    run_child(only_exit, &end); /* nothing was allocated, nothing is told */
    ck_assert_int_eq(end.status, 0);
    ck_assert_str_eq(end.text, "");
}
END_TEST

START_TEST(text_at_exit)
{
    struct child_end end;
    form = "1";
    run_child(allocate_and_exit, &end);
    ck_assert_int_eq(end.status, 0);
    static const char *const names[] = {
        "reserved", "committed", "in_use", "large",  "free_list", "free_unit", "tails", "free_runs",
        "resident", "huge",      "tables", "arenas", "refills",   "flushes",   "size",  "units"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(strstr(end.text, names[i]) != NULL, "no %s in: %s", names[i], end.text);
    ck_assert_uint_ge(lines_of(end.text), 40);
    for (char *line = strtok(end.text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        ck_assert_msg(strncmp(line, "slate: ", 7) == 0, "%s", line);
        ck_assert_msg(strlen(line) <= 100, "%s", line);
    }
}
END_TEST

#ifdef WITH_JANSSON
static json_int_t field(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    ck_assert_msg(json_is_integer(value), "%s is missing", name);
    return json_integer_value(value);
}

START_TEST(json_at_exit)
{
    struct child_end end;
    form = "json";
    run_child(allocate_and_exit, &end);
    ck_assert_int_eq(end.status, 0);
    json_error_t error;
    json_t *all = json_loads(end.text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(all != NULL, "%s: %s", error.text, end.text);
    json_int_t in_use = field(all, "large");
    const json_t *classes = json_object_get(all, "classes");
    ck_assert(json_is_array(classes));
    ck_assert_uint_ge(json_array_size(classes), 30);
    json_int_t last = 0;
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *of = json_array_get(classes, i);
        ck_assert_int_gt(field(of, "size"), last);
        last = field(of, "size");
        ck_assert_int_eq(field(of, "units"), field(of, "in_use") + field(of, "free_list") +
                                                 field(of, "free_unit") + field(of, "tails"));
        in_use += field(of, "in_use");
    }
    ck_assert_int_eq(field(all, "in_use"), in_use);
    ck_assert_int_ge(in_use, 1000 * 999 / 2 * 20);
    ck_assert_int_eq(field(all, "resident"),
                     in_use + field(all, "free_list") + field(all, "free_unit") +
                         field(all, "tails") + field(all, "free_runs") + field(all, "above_top") +
                         field(all, "own_mappings") + field(all, "tables") - field(all, "absent"));
    ck_assert_int_eq(field(all, "arenas"), 1);
    json_decref(all);
}
END_TEST
#endif

int main(void)
{
    unsetenv("SLATE_STATS");
    Suite *suite = suite_create("stats");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, equations_hold);
    tcase_add_test(tests, threads_that_ended);
    tcase_add_test(tests, resident_is_explained);
    tcase_add_test(tests, mappings_are_explained);
    tcase_add_test(tests, purge_tells_the_truth);
    tcase_add_test(tests, sizes_of_the_struct);
    tcase_add_test(tests, none_at_exit);
    tcase_add_test(tests, text_at_exit);
#ifdef WITH_JANSSON
    tcase_add_test(tests, json_at_exit);
#endif
    return run_suite(suite);
}
