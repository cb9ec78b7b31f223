/* tests/check_pool.c - runs of the pool, against a model that keeps an owner for each granule.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>

#include "check_support.h"
#include "os.h"
#include "policy.h"
#include "reserve.h"
#include "tunables.h"

#define TAG_OF_UNITS ((uint16_t)(5 << SLATE_MAP_SHIFT_ | (SLATEI_MAP_CLASS + 3)))

static void set_up(enum slatei_policy policy, size_t switch_bytes)
{
    slatei_settings.policy = policy;
    slatei_settings.switch_bytes = switch_bytes;
    slatei_settings.slice_bytes = 16 * MIB;
    slatei_settings.arenas = 4;
    slatei_os_start();
    require_equal(slatei_reserve_start(), 0);
    slatei_pool_start();
}

static size_t top_now(void)
{
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    return counts.top >> SLATE_GRANULE_SHIFT_;
}

/* ---- the model */

#define MODEL_GRANULES ((size_t)1 << 16)
#define MODEL_RUNS 700

struct model_run {
    size_t first, count;
    bool large;
};

static struct {
    bool used[MODEL_GRANULES];
    size_t top;
    size_t live;
    struct model_run run[MODEL_RUNS];
    uint16_t mark[MODEL_GRANULES]; /* offset of the byte that was written in a granule */
} model;

static size_t bias(void) { return (uintptr_t)slatei_reserve.base >> SLATE_GRANULE_SHIFT_; }

static size_t aligned(size_t granule, size_t alignment)
{
    return (granule + bias() + alignment - 1) / alignment * alignment - bias();
}

/* Where a run has to come from: the shortest free run that holds it, the lowest of these, else the
 * top. */
static size_t model_place(size_t count, size_t alignment)
{
    size_t best = 0, best_length = SIZE_MAX;
    for (size_t first = 1; first < model.top;) {
        size_t end = first;
        while (end < model.top && model.used[end] == model.used[first])
            end++;
        size_t start = aligned(first, alignment);
        if (!model.used[first] && start + count <= end && end - first < best_length) {
            best = start;
            best_length = end - first;
        }
        first = end;
    }
    return best != 0 ? best : aligned(model.top, alignment);
}

static void model_set(size_t first, size_t count, bool used)
{
    for (size_t i = first; i < first + count; i++)
        model.used[i] = used;
    if (first + count > model.top)
        model.top = first + count;
    while (model.top > 1 && !model.used[model.top - 1])
        model.top--;
}

static char tag_of(size_t granule) { return (char)(granule * 31 + 1) | 1; }

/* A byte in each granule says whose it is. */
static void write_marks(struct random *random, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        model.mark[i] = (uint16_t)below(random, SLATEI_GRANULE);
        slatei_address_of(i)[model.mark[i]] = tag_of(i);
    }
}

static void check_marks(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        require_equal(slatei_address_of(i)[model.mark[i]], tag_of(i));
}

static void check_counts(void)
{
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    size_t free_granules = 0;
    for (size_t i = 1; i < model.top; i++)
        free_granules += !model.used[i];
    require_equal(counts.top, model.top << SLATE_GRANULE_SHIFT_);
    require_equal(counts.free_runs, free_granules << SLATE_GRANULE_SHIFT_);
    require_at_least(counts.high, counts.top);
    require_at_least(counts.committed, counts.high);
    require_at_least(slatei_reserve.pool_span, counts.committed);
}

/* The map says of each granule what the model says; free runs are whole, so no two touch. */
static void check_map(void)
{
    for (size_t i = 0; i < model.live; i++) {
        const struct model_run *run = &model.run[i];
        require_equal(slatei_reserve.map[run->first], run->large ? SLATEI_MAP_LARGE : TAG_OF_UNITS);
        for (size_t j = run->first + 1; j < run->first + run->count; j++)
            require_equal(slatei_reserve.map[j], run->large ? SLATEI_MAP_INSIDE : TAG_OF_UNITS);
        if (run->large)
            require_equal(slatei_reserve.descriptor[run->first].large.length, run->count);
    }
    for (size_t first = 1; first < model.top; first++) {
        if (model.used[first])
            continue;
        size_t end = first;
        for (; end < model.top && !model.used[end]; end++)
            require_equal(slatei_reserve.map[end], SLATEI_MAP_FREE);
        require_equal(slatei_reserve.descriptor[first].run.length, end - first);
        require_equal(slatei_reserve.descriptor[end - 1].run.length, end - first);
        first = end;
    }
    check_counts();
}

static void take_one(struct random *random, size_t count, size_t alignment)
{
    bool large = below(random, 2) != 0, zero = true;
    size_t wanted = model_place(count, alignment);
    size_t first = slatei_pool_take(count, alignment, large ? SLATEI_MAP_LARGE : TAG_OF_UNITS,
                                    below(random, 20) == 0 ? NULL : &zero);
    require_equal(first, wanted);
    require_equal((uintptr_t)slatei_address_of(first) % (alignment * SLATEI_GRANULE), 0);
    model_set(first, count, true);
    model.run[model.live++] = (struct model_run){first, count, large};
    write_marks(random, first, count);
}

/* As above, and looks at all of the memory if it is said to be zero. */
static bool take_and_look(struct random *random, size_t count)
{
    bool zero = false;
    size_t first = slatei_pool_take(count, 1, SLATEI_MAP_LARGE, &zero);
    require_equal(first, model_place(count, 1));
    if (zero)
        require(all_zero(slatei_address_of(first), count * SLATEI_GRANULE));
    model_set(first, count, true);
    model.run[model.live++] = (struct model_run){first, count, true};
    write_marks(random, first, count);
    return zero;
}

static void put_one(struct random *random, size_t index)
{
    struct model_run run = model.run[index];
    check_marks(run.first, run.count);
    bool zero = run.count <= 16 && below(random, 4) == 0;
    if (zero)
        for (size_t i = run.first; i < run.first + run.count; i++)
            slatei_address_of(i)[model.mark[i]] = 0;
    /* Only marks were written, so it is zero if it was zero when it was taken; else it is made so.
     */
    if (zero)
        memset(slatei_address_of(run.first), 0, run.count * SLATEI_GRANULE);
    slatei_pool_put(run.first, run.count, zero);
    model_set(run.first, run.count, false);
    model.run[index] = model.run[--model.live];
}

static void resize_one(struct random *random, size_t index, size_t wanted)
{
    struct model_run *run = &model.run[index];
    size_t end = run->first + run->count, new_end = run->first + wanted;
    bool fits = true;
    for (size_t i = end; i < new_end && i < model.top; i++)
        fits = fits && !model.used[i];
    /* A free run behind never ends at the top: what is not all free there is in use. */
    bool can = wanted <= run->count || end == model.top || (fits && new_end <= model.top);
    require_equal(slatei_pool_resize(run->first, run->count, wanted), can);
    if (!can)
        return;
    if (wanted < run->count)
        model_set(new_end, run->count - wanted, false);
    else
        model_set(end, wanted - run->count, true);
    check_marks(run->first, wanted < run->count ? wanted : run->count);
    if (wanted > run->count)
        write_marks(random, end, wanted - run->count);
    run->count = wanted;
}

static void random_work(uint64_t seed, unsigned steps)
{
    struct random random = {seed};
    memset(&model, 0, sizeof model);
    model.top = top_now();
    require_equal(model.top, 1);
    model.used[0] = true;
    unsigned zeroes = 0;
    for (unsigned i = 0; i < steps; i++) {
        size_t action = below(&random, 100);
        /* Growing and shrinking in turns. */
        bool growing = i / 1500 % 2 == 0;
        if (model.live != 0 && action < (growing ? 35u : 55u)) {
            put_one(&random, below(&random, model.live));
        } else if (model.live != 0 && action < 70) {
            size_t index = below(&random, model.live);
            if (!model.run[index].large)
                continue;
            size_t wanted = below(&random, 2) != 0 ? model.run[index].count + below(&random, 9)
                                                   : 1 + below(&random, model.run[index].count);
            resize_one(&random, index, wanted);
        } else if (model.live < MODEL_RUNS && model.top < MODEL_GRANULES - 2048) {
            size_t count = 1 + skewed(&random, 8);
            if (below(&random, 3) == 0)
                zeroes += take_and_look(&random, count);
            else
                take_one(&random, count, (size_t)1 << (below(&random, 4) * below(&random, 4)));
        }
        if (below(&random, 1000) == 0)
            slatei_pool_purge();
        if (i % 500 == 0)
            check_map();
    }
    require(zeroes > 0 || slow_here());
    while (model.live > 0) {
        put_one(&random, model.live - 1);
        if (model.live % 64 == 0)
            check_map();
    }
    check_map();
    require_equal(top_now(), 1);
}

static unsigned steps(void) { return slow_here() ? 1500 : 12000; }

CHILD_TEST(random_work_shared)
{
    set_up(SLATEI_SHARED, 4 * MIB);
    uint64_t seed = seed_of_run();
    for (unsigned i = 0; i < 3; i++)
        random_work(seed * 1000 + i, steps());
}

CHILD_TEST(random_work_never)
{
    set_up(SLATEI_NEVER, 0);
    random_work(seed_of_run() * 1000 + 100, steps());
}

CHILD_TEST(random_work_always)
{
    set_up(SLATEI_ALWAYS, 0);
    random_work(seed_of_run() * 1000 + 200, steps());
}

/* ---- one rule at a time */

static size_t take(size_t count) { return slatei_pool_take(count, 1, SLATEI_MAP_LARGE, NULL); }

CHILD_TEST(best_fit_lowest_address)
{
    set_up(SLATEI_SHARED, 8 * MIB);
    size_t a = take(10), wall1 = take(1), b = take(5), wall2 = take(1), c = take(5),
           wall3 = take(1), d = take(7), wall4 = take(1);
    require(a < wall1 && wall1 < b && b < wall2 && wall2 < c && c < wall3 && wall3 < d);
    slatei_pool_put(c, 5, false);
    slatei_pool_put(a, 10, false);
    slatei_pool_put(d, 7, false);
    slatei_pool_put(b, 5, false);
    require_equal(take(4), b); /* the shortest, and the lower of two */
    require_equal(take(5), c);
    require_equal(take(6), d);
    require_equal(take(10), a);
    require_equal(take(2), wall4 + 1); /* new ground: nothing holds two */
}

CHILD_TEST(runs_join)
{
    set_up(SLATEI_SHARED, 8 * MIB);
    size_t a = take(3), b = take(4), c = take(5), d = take(1);
    slatei_pool_put(a, 3, false);
    slatei_pool_put(c, 5, false);
    require_equal(slatei_reserve.descriptor[a].run.length, 3);
    slatei_pool_put(b, 4, false); /* before and behind */
    require_equal(slatei_reserve.descriptor[a].run.length, 12);
    require_equal(take(12), a);
    slatei_pool_put(a, 12, false);
    require_equal(top_now(), d + 1);
    slatei_pool_put(d, 1, false); /* and all of it lowers the top */
    require_equal(top_now(), a);
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    require_equal(counts.free_runs, 0);
    require_equal(counts.high, (d + 1) << SLATE_GRANULE_SHIFT_);
    require_at_least(counts.taken, 5);
}

CHILD_TEST(alignment_to_a_gibibyte)
{
    set_up(SLATEI_SHARED, 8 * MIB);
    SKIP_IF(slatei_reserve.pool_span < 8 * GIB, "the address space is too small here");
    size_t runs[19];
    for (unsigned shift = 0; shift <= 18; shift++) {
        size_t alignment = (size_t)1 << shift;
        runs[shift] = slatei_pool_take(3, alignment, SLATEI_MAP_LARGE, NULL);
        require(runs[shift] != 0);
        require_equal((uintptr_t)slatei_address_of(runs[shift]) % (alignment << 12), 0);
        memset(slatei_address_of(runs[shift]), 1, 3 * SLATEI_GRANULE);
    }
    /* The gaps that alignment leaves are free runs. */
    require(take(1000) < runs[18]);
    for (unsigned shift = 0; shift <= 18; shift++) {
        require_equal(slatei_address_of(runs[shift])[3 * SLATEI_GRANULE - 1], 1);
        slatei_pool_put(runs[shift], 3, false);
    }
}

CHILD_TEST(too_much_is_refused)
{
    set_up(SLATEI_SHARED, 8 * MIB);
    size_t span = slatei_reserve.pool_span >> SLATE_GRANULE_SHIFT_, a = take(3);
    require_equal(take(span), 0);
    require_equal(take(span - 3), 0);
    require_equal(take(span * 2), 0);
    require(!slatei_pool_resize(a, 3, span));
    require_equal(top_now(), a + 3);
    require_equal(take(2), a + 3);
}

CHILD_TEST(refused_by_the_system)
{
    SKIP_UNDER_TOOLS();
    set_up(SLATEI_SHARED, 8 * MIB);
    size_t a = take(3);
    (void)status_bytes("VmData");
    limit_growth(RLIMIT_DATA, 64 * MIB);
    require_equal(take(65 * MIB >> SLATE_GRANULE_SHIFT_), 0);
    require_equal(top_now(), a + 3);
    require(!slatei_pool_resize(a, 3, 65 * MIB >> SLATE_GRANULE_SHIFT_));
    require_equal(slatei_reserve.descriptor[a].large.length, 3);
    size_t b = take(10);
    require_equal(b, a + 3);
    memset(slatei_address_of(b), 1, 10 * SLATEI_GRANULE);
    /* Nearly all of it can be had. */
    size_t granules = 0;
    while (take(16) != 0)
        granules += 16;
    require_at_least(granules << SLATE_GRANULE_SHIFT_, 40 * MIB);
}

/* ---- zero memory */

CHILD_TEST(zero_flag)
{
    SKIP_IF(RUNNING_ON_VALGRIND, "Valgrind keeps its own books on memory that was given back");
    set_up(SLATEI_SHARED, 4 * MIB);
    bool zero = false;
    size_t a = slatei_pool_take(16, 1, SLATEI_MAP_LARGE, &zero), b = take(1);
    require(zero); /* new ground */
    memset(slatei_address_of(a), 1, 16 * SLATEI_GRANULE);
    slatei_pool_put(a, 16, false);
    require_equal(slatei_pool_take(16, 1, SLATEI_MAP_LARGE, &zero), a);
    require(!zero);
    slatei_pool_put(a, 16, false);
    slatei_pool_purge();
    require_equal(slatei_pool_take(16, 1, SLATEI_MAP_LARGE, &zero), a);
    require(zero);
    require(all_zero(slatei_address_of(a), 16 * SLATEI_GRANULE));
    slatei_pool_put(a, 16, true);
    require_equal(slatei_pool_take(8, 1, SLATEI_MAP_LARGE, &zero), a);
    require(zero);
    /* Half of it dirty, joined with the clean half: not zero. */
    memset(slatei_address_of(a), 1, 8 * SLATEI_GRANULE);
    slatei_pool_put(a, 8, false);
    require_equal(slatei_pool_take(16, 1, SLATEI_MAP_LARGE, &zero), a);
    require(!zero);
    /* What was above the top once is not new. */
    memset(slatei_address_of(b), 1, SLATEI_GRANULE);
    slatei_pool_put(b, 1, false);
    require_equal(slatei_pool_take(1, 1, SLATEI_MAP_LARGE, &zero), b);
    require(!zero);
}

/* ---- memory in use */

static size_t resident(size_t first, size_t count)
{
    size_t bytes = 0;
    require_equal(slatei_os_resident(slatei_address_of(first), count * SLATEI_GRANULE, &bytes), 0);
    return bytes;
}

static void touch(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        *slatei_address_of(i) = 1;
}

/* After a purge no page below the switch point that is free is in memory, and no whole huge page
 * beyond it. */
CHILD_TEST(purge_then_resident)
{
    SKIP_UNDER_TOOLS();
    set_up(SLATEI_SHARED, 4 * MIB);
    struct random random = {seed_of_run()};
    enum { RUNS = 300 };
    size_t first[RUNS], count[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        count[i] = 1 + below(&random, 100);
        first[i] = take(count[i]);
        touch(first[i], count[i]);
    }
    size_t high = top_now(), small_end = slatei_policy_small_end() >> SLATE_GRANULE_SHIFT_;
    require(high > small_end + (8 * MIB >> SLATE_GRANULE_SHIFT_));
    /* The last huge page reaches beyond. */
    size_t end = slatei_round_up(high, slatei_os_huge_page_size() >> SLATE_GRANULE_SHIFT_);
    size_t before = resident(0, end);
    for (unsigned i = 0; i < RUNS; i++)
        if (i % 5 != 0 || i > 200)
            slatei_pool_put(first[i], count[i], false);
    size_t given = slatei_pool_purge();
    /* What the tables had above the top comes on top of it. */
    require_at_least(given, before - resident(0, end));
    require_at_most(given, before - resident(0, end) + MIB);
    require(given > 0);
    size_t huge = slatei_os_huge_page_size() >> SLATE_GRANULE_SHIFT_;
    bool *live = calloc(high, 1);
    require(live != NULL);
    for (unsigned i = 0; i <= 200; i += 5)
        memset(live + first[i], 1, count[i]);
    for (size_t i = 1; i < small_end; i++)
        require_equal(resident(i, 1), live[i] ? SLATEI_GRANULE : 0);
    for (size_t i = small_end; i + huge <= high; i += huge) {
        bool none = true;
        for (size_t j = i; j < i + huge; j++)
            none = none && !live[j];
        if (none)
            require_equal(resident(i, huge), 0);
    }
    for (unsigned i = 0; i <= 200; i += 5)
        for (size_t j = first[i]; j < first[i] + count[i]; j++)
            require_equal(*slatei_address_of(j), 1);
    free(live);
    require_equal(slatei_pool_purge(), 0); /* there is nothing left to give */
}

/* Free memory goes back as new ground is taken, about as much, and not before. */
CHILD_TEST(give_back_as_the_top_rises)
{
    SKIP_UNDER_TOOLS();
    set_up(SLATEI_NEVER, 0);
    enum { RUNS = 512, LENGTH = 64 };
    size_t first[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        first[i] = take(LENGTH);
        touch(first[i], LENGTH);
    }
    size_t top = top_now(), all = resident(0, top);
    require_at_least(all, RUNS * LENGTH * SLATEI_GRANULE);
    for (unsigned i = 0; i < RUNS; i += 2)
        slatei_pool_put(first[i], LENGTH, false);
    require_equal(resident(0, top), all); /* nothing grew, so nothing went */
    for (unsigned i = 0; i < RUNS / 4; i++) {
        size_t grown = take(LENGTH + 1); /* fits no free run */
        require_at_least(grown, top);
        touch(grown, LENGTH + 1);
        require_at_most(resident(0, top_now()), all + 3 * MIB);
    }
    /* A quarter of it grew anew and about a quarter of it went. */
    size_t grown = RUNS / 4 * LENGTH * SLATEI_GRANULE;
    require_at_most(resident(0, top), all - grown + 3 * MIB);
    require_at_least(resident(0, top) + grown * 3 / 2, all);
    for (unsigned i = 1; i < RUNS; i += 2)
        for (size_t j = first[i]; j < first[i] + LENGTH; j++)
            require_equal(*slatei_address_of(j), 1);
}

/* The same memory over and over is not given back and taken again. */
CHILD_TEST(no_cycle)
{
    SKIP_UNDER_TOOLS();
    set_up(SLATEI_NEVER, 0);
    size_t count = 9 * MIB >> SLATE_GRANULE_SHIFT_;
    size_t before = minor_faults();
    for (unsigned i = 0; i < 600; i++) {
        size_t a = take(count), wall = take(1);
        touch(a, count);
        slatei_pool_put(a, count, false);
        size_t b = take(count + 1 - i % 2);
        touch(b, count);
        slatei_pool_put(b, count + 1 - i % 2, false);
        slatei_pool_put(wall, 1, false);
    }
    require_at_most(minor_faults() - before, 3 * count + 64);
}

/* ---- threads */

static void *take_and_put(void *number)
{
    struct random random = {(uintptr_t)number};
    enum { SLOTS = 64 };
    size_t first[SLOTS] = {0}, count[SLOTS];
    for (unsigned i = 0; i < (slow_here() ? 2000u : 20000u); i++) {
        size_t k = below(&random, SLOTS);
        if (first[k] != 0) {
            require(holds(slatei_address_of(first[k]), 64, 64, first[k] ^ (uintptr_t)number));
            require(holds(slatei_address_of(first[k] + count[k] - 1), 64, 64, count[k]));
            slatei_pool_put(first[k], count[k], false);
        }
        count[k] = 2 + skewed(&random, 8);
        first[k] = take(count[k]);
        require(first[k] != 0);
        fill(slatei_address_of(first[k]), 64, first[k] ^ (uintptr_t)number);
        fill(slatei_address_of(first[k] + count[k] - 1), 64, count[k]);
    }
    for (unsigned k = 0; k < SLOTS; k++)
        if (first[k] != 0)
            slatei_pool_put(first[k], count[k], false);
    return number;
}

CHILD_TEST(threads)
{
    set_up(SLATEI_SHARED, 4 * MIB);
    uint64_t seed = seed_of_run();
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        require_equal(pthread_create(&threads[i], NULL, take_and_put, (void *)(seed * 8 + i)), 0);
    for (unsigned i = 0; i < 20; i++)
        slatei_pool_purge();
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    require_equal(counts.top, SLATEI_GRANULE);
    require_equal(counts.free_runs, 0);
}

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, random_work_shared);
    tcase_add_test(tests, random_work_never);
    tcase_add_test(tests, random_work_always);
    tcase_add_test(tests, best_fit_lowest_address);
    tcase_add_test(tests, runs_join);
    tcase_add_test(tests, alignment_to_a_gibibyte);
    tcase_add_test(tests, too_much_is_refused);
    tcase_add_test(tests, refused_by_the_system);
    tcase_add_test(tests, zero_flag);
    tcase_add_test(tests, purge_then_resident);
    tcase_add_test(tests, give_back_as_the_top_rises);
    tcase_add_test(tests, no_cycle);
    tcase_add_test(tests, threads);
    return run_suite(suite);
}
