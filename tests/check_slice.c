/* tests/check_slice.c - units and records: capacity, refill, flush, drain, and where places are.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "slice.h"

#include <pthread.h>

#include "check_support.h"
#include "pool.h"
#include "tunables.h"

static struct slatei_arena *self(void) { return (struct slatei_arena *)(void *)slate_self_; }

static void start(enum slatei_policy policy)
{
    slatei_settings.policy = policy;
    void *first = slate_alloc(1);
    require(first != NULL);
    slate_free(first);
}

/* ---- the table of classes */

CHILD_TEST(classes)
{
    slatei_slice_start();
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slatei_class *class = &slatei_classes[i];
        size_t size = slate_class_size_(i), bytes = class->granules * SLATEI_GRANULE;
        require_equal(slate_class_of_(size), i);
        require_at_least(class->capacity, 1);
        require_at_least(bytes, class->capacity * size);
        /* unit_offset has a byte for a granule. */
        require_at_most(class->granules, 256);
        /* The bits run on into the descriptors of the unit's own granules. */
        size_t words = (class->capacity + 63u) / 64;
        require_at_least(class->granules * sizeof(struct slatei_descriptor),
                         offsetof(struct slatei_descriptor, unit.bits) + words * 8);
        /* What a unit wastes is small: a sixteenth, or less than a block of a few. */
        size_t waste = bytes - class->capacity * size;
        require(waste * 16 <= bytes);
        require(class->room > 0);
        require_at_least(class->keep, 1);
        require_at_least(class->ready, 1);
        require_at_most(class->ready, class->capacity);
    }
}

/* For each byte of each place of a unit. */
CHILD_TEST(reciprocals)
{
    slatei_slice_start();
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slatei_class *class = &slatei_classes[i];
        size_t size = slate_class_size_(i), wrong = 0;
        for (size_t offset = 0; offset < class->capacity * size; offset++)
            wrong += (uint64_t)offset * class->reciprocal >> 32 != offset / size;
        require_values(__FILE__, __LINE__, "every offset gives its place", wrong == 0, i, wrong);
    }
}

/* ---- blocks of units */

static size_t unit_of(const void *block)
{
    size_t granule = slatei_granule_of(block);
    return granule - slatei_reserve.unit_offset[granule];
}

/* The block is a place of a unit of its class and arena. */
static void check_place(const void *block, unsigned class_index)
{
    const struct slatei_class *class = &slatei_classes[class_index];
    size_t unit = unit_of(block), size = slate_class_size_(class_index);
    size_t offset = (size_t)((const char *)block - slatei_address_of(unit));
    require_equal(offset % size, 0);
    require(offset / size < class->capacity);
    require_equal(slatei_reserve.map[unit], self()->front.tag + class_index);
    require_equal(slatei_reserve.map[slatei_granule_of(block)], self()->front.tag + class_index);
    require_equal((uintptr_t)block % 16, 0);
}

static int by_address(const void *a, const void *b)
{
    const char *first = *(char *const *)a, *second = *(char *const *)b;
    return first < second ? -1 : first > second;
}

static void check_sums(unsigned class_index, size_t live)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    const struct slate_class_stats *of = &stats.classes[class_index];
    require_equal(of->size, slate_class_size_(class_index));
    require_equal(of->in_use, live * of->size);
    require_equal(of->units, of->in_use + of->free_list + of->free_unit + of->tails);
    const struct slatei_class *class = &slatei_classes[class_index];
    size_t units = self()->front.behind[class_index].units;
    require_equal(of->units, units * class->granules * SLATEI_GRANULE);
    size_t bytes = class->granules * SLATEI_GRANULE;
    require_equal(of->tails, units * (bytes - class->capacity * of->size));
}

#define ROOM 4096

/* Blocks of some units: each place once, none twice, contents kept, the sums right throughout. */
static void whole_units(unsigned class_index, struct random *random)
{
    static void *block[ROOM];
    const struct slatei_class *class = &slatei_classes[class_index];
    size_t size = slate_class_size_(class_index), count = class->capacity * 4u + 3;
    require_at_most(count, ROOM);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < count; i++) {
            require((block[i] = slate_alloc(size)) != NULL);
            check_place(block[i], class_index);
            memset(block[i], (int)(i & 0xff), size);
        }
        check_sums(class_index, count);
        for (size_t i = 0; i < count; i++) {
            const unsigned char *bytes = block[i];
            require_equal(bytes[0], i & 0xff);
            require(memcmp(bytes, bytes + 1, size - 1) == 0);
        }
        static void *sorted[ROOM];
        memcpy(sorted, block, count * sizeof *block);
        qsort(sorted, count, sizeof *sorted, by_address);
        for (size_t i = 1; i < count; i++)
            require_at_least((char *)sorted[i], (char *)sorted[i - 1] + size);
        /* All of them at the most, so that no place is left out for ever. */
        size_t used = 1;
        for (size_t i = 1; i < count; i++)
            used += unit_of(sorted[i]) != unit_of(sorted[i - 1]);
        require_at_most(used, (count + class->capacity - 1) / class->capacity + round);
        for (size_t left = count; left > 0; left--) {
            size_t k = below(random, left);
            slate_free(block[k]);
            block[k] = block[left - 1];
            if (left % (slow_here() ? ROOM : 256) == 1)
                check_sums(class_index, left - 1);
        }
    }
}

static void whole_units_of_all(enum slatei_policy policy)
{
    start(policy);
    struct random random = {seed_of_run()};
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        whole_units(i, &random);
}

CHILD_TEST(units_of_slices) { whole_units_of_all(SLATEI_SWITCH); }

CHILD_TEST(units_of_the_pool) { whole_units_of_all(SLATEI_SHARED); }

CHILD_TEST(units_in_order_lifo)
{
    slatei_settings.order = SLATEI_LIFO;
    whole_units_of_all(SLATEI_SWITCH);
}

/* A full class slice is no reason to fail. */
CHILD_TEST(beyond_a_slice)
{
    SKIP_IF(RUNNING_ON_VALGRIND, "too slow there");
    slatei_settings.slice_bytes = 16 * MIB;
    start(SLATEI_NEVER);
    size_t span = slatei_reserve.slice_span, size = 8192, beyond = 0;
    void *newest = NULL;
    for (size_t bytes = 0; bytes < span + 4 * MIB; bytes += size) {
        void **block = slate_alloc(size);
        require(block != NULL);
        *block = newest;
        newest = block;
        check_place(block, slate_class_of_(size));
        beyond += slatei_granule_of(block) < slatei_reserve.pool_span >> SLATE_GRANULE_SHIFT_;
    }
    require_at_least(beyond * size, 3 * MIB);
    require_at_most(beyond * size, 8 * MIB);
    while (newest != NULL) {
        void *next = *(void **)newest;
        slate_free(newest);
        newest = next;
    }
    check_sums(slate_class_of_(size), 0);
}

/* ---- flush */

static size_t listed(unsigned class_index, void **out, size_t room)
{
    size_t count = 0;
    void *const *at = self()->front.behind[class_index].top;
    for (void *block = self()->front.entry[class_index].newest; block != NULL; block = *at--)
        if (count++ < room)
            out[count - 1] = block;
    return count;
}

/* A flush keeps the newest, in their order. */
CHILD_TEST(flush_keeps_the_newest)
{
    start(SLATEI_SHARED);
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        static void *block[ROOM], *list[ROOM];
        size_t size = slate_class_size_(i), keep = slatei_classes[i].keep;
        size_t count = keep + keep / 2 + 2;
        if (count >= slatei_classes[i].room)
            count = slatei_classes[i].room - 1u;
        for (size_t j = 0; j < count; j++)
            require((block[j] = slate_alloc(size)) != NULL);
        slatei_slice_flush_all(self());
        for (size_t j = 0; j < count; j++)
            slate_free(block[j]);
        require_at_least(listed(i, list, ROOM), count);
        uint64_t flushed = self()->flushed;
        self()->returned_since = 0; /* or all lists are flushed */
        slatei_slice_flush(self(), i);
        size_t kept = listed(i, list, ROOM);
        require_at_least(kept, 1);
        require_at_most(kept, keep);
        for (size_t j = 0; j < kept && j < count; j++)
            require_equal(list[j], block[count - 1 - j]);
        require_at_least(self()->flushed - flushed, count - kept);
        require_equal(kept, keep);
        check_sums(i, 0);
        for (size_t j = 0; j < kept && j < count; j++) {
            void *again = slate_alloc(size);
            require_equal(again, list[j]);
        }
        for (size_t j = 0; j < kept && j < count; j++)
            slate_free(list[j]);
    }
}

/* The list stays bounded however much is freed. */
CHILD_TEST(lists_stay_bounded)
{
    start(SLATEI_SHARED);
    static void *block[20000];
    size_t count = slow_here() ? 5000 : 20000;
    for (size_t j = 0; j < count; j++)
        require((block[j] = slate_alloc(48)) != NULL);
    unsigned class_index = slate_class_of_(48);
    size_t most = slatei_classes[class_index].room;
    for (size_t j = 0; j < count; j++) {
        slate_free(block[j]);
        if (j % 97 == 0)
            require_at_most(listed(class_index, NULL, 0), most);
    }
    require_at_least(self()->flushes, 2);
    check_sums(class_index, 0);
}

/* ---- wholly free units */

static struct slate_stats stats_now(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats;
}

CHILD_TEST(free_units_go_back)
{
    start(SLATEI_SHARED);
    struct slatei_pool_counts before, after;
    slate_purge();
    slatei_pool_count(&before);
    static void *block[ROOM];
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        size_t size = slate_class_size_(i), count = slatei_classes[i].capacity * 3u;
        uint64_t taken = stats_now().units_taken;
        for (size_t j = 0; j < count; j++)
            require((block[j] = slate_alloc(size)) != NULL);
        require_at_least(stats_now().units_taken, taken + 3);
        for (size_t j = 0; j < count; j++)
            slate_free(block[j]);
        /* Without a purge, some stay: on the list, the current one and a spare one. */
        slate_purge();
        check_sums(i, 0);
        struct slate_stats stats = stats_now();
        require_equal(stats.classes[i].units, 0);
        require_equal(stats.units_taken, stats.units_returned);
    }
    slatei_pool_count(&after);
    require_equal(after.top, before.top);
    require_equal(after.free_runs, before.free_runs);
}

/* Also without a purge most go back, by flushes alone. */
CHILD_TEST(flushes_return_units)
{
    start(SLATEI_SHARED);
    static void *block[20000];
    for (size_t j = 0; j < 20000; j++)
        require((block[j] = slate_alloc(256)) != NULL);
    size_t peak = stats_now().classes[slate_class_of_(256)].units;
    for (size_t j = 0; j < 20000; j++)
        slate_free(block[j]);
    size_t left = stats_now().classes[slate_class_of_(256)].units;
    require_at_most(left, peak / 8);
    require_at_least(stats_now().units_returned, 100);
}

/* ---- foreign frees */

#define FOREIGN 3000

static void *foreign[FOREIGN];

static void *free_all(void *unused)
{
    for (size_t i = 0; i < FOREIGN; i++)
        slate_free(foreign[i]);
    return unused;
}

static void drain(enum slatei_policy policy)
{
    start(policy);
    struct random random = {seed_of_run()};
    for (size_t i = 0; i < FOREIGN; i++) {
        size_t size = skewed(&random, 13);
        require((foreign[i] = slate_alloc(size)) != NULL);
        fill(foreign[i], size, i);
    }
    size_t before = stats_now().in_use;
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, free_all, NULL), 0);
    pthread_join(thread, NULL);
    slatei_slice_drain(self());
    require(slatei_arena_take_foreign(self()) == NULL);
    struct slate_stats stats = stats_now();
    require(before > 0);
    require_equal(stats.in_use, 0);
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        check_sums(i, 0);
    slate_purge();
    if (policy == SLATEI_SHARED) {
        stats = stats_now();
        require_equal(stats.units_taken, stats.units_returned);
    }
}

CHILD_TEST(drain_in_slices) { drain(SLATEI_SWITCH); }

CHILD_TEST(drain_in_the_pool) { drain(SLATEI_SHARED); }

/* A slow path takes them in by itself. */
CHILD_TEST(slow_path_drains)
{
    start(SLATEI_SHARED);
    for (size_t i = 0; i < FOREIGN; i++)
        require((foreign[i] = slate_alloc(64)) != NULL);
    size_t units = stats_now().classes[slate_class_of_(64)].units;
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, free_all, NULL), 0);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < FOREIGN; i++)
        require(slate_alloc(64) != NULL);
    require_at_most(stats_now().classes[slate_class_of_(64)].units, units + 8 * SLATEI_GRANULE);
    check_sums(slate_class_of_(64), FOREIGN);
}

/* ---- zero memory */

/* What is said to be zero is zero, with memory that was written to, freed, and used again. */
static void zero_is_zero(enum slatei_policy policy)
{
    start(policy);
    struct random random = {seed_of_run()};
    unsigned zeroes = 0;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        enum { SLOTS = 400 };
        void *slot[SLOTS] = {NULL};
        size_t size = slate_class_size_(i);
        for (unsigned step = 0; step < (slow_here() ? 500u : 2000u); step++) {
            size_t k = below(&random, SLOTS);
            slate_free(slot[k]);
            bool zero = false;
            slot[k] = slatei_slice_alloc_zero(self(), i, &zero);
            require(slot[k] != NULL);
            SLATE_TRACK_ALLOC_(slot[k], size);
            zeroes += zero;
#if !defined(SLATE_VALGRIND)
            if (zero)
                require(all_zero(slot[k], size));
#endif
            memset(slot[k], 0xa5, size);
            if (below(&random, 100) == 0)
                slatei_slice_flush(self(), i);
            if (below(&random, 300) == 0)
                slatei_slice_flush_all(self());
        }
        for (size_t k = 0; k < SLOTS; k++)
            slate_free(slot[k]);
    }
    require_at_least(zeroes, SLATE_CLASSES);
}

CHILD_TEST(zero_in_slices) { zero_is_zero(SLATEI_SWITCH); }

CHILD_TEST(zero_in_the_pool) { zero_is_zero(SLATEI_SHARED); }

/* ---- double frees */

/* Frees a block, and once more when the first free is in the records and newer frees on top of the
 * second one, so that the next flush meets both. */
static void free_one_twice(unsigned class_index)
{
    static void *newer[ROOM];
    size_t size = slate_class_size_(class_index), count = slatei_classes[class_index].keep + 1u;
    void *volatile block = slate_alloc(size);
    require(block != NULL);
    for (size_t i = 0; i < count; i++)
        require((newer[i] = slate_alloc(size)) != NULL);
    slate_free(block);
    slatei_slice_flush_all(self());
    slate_free(block); /* the fault */
    for (size_t i = 0; i < count; i++)
        slate_free(newer[i]);
    slatei_slice_flush(self(), class_index);
}

static void free_twice(void)
{
    start(SLATEI_SWITCH);
    unsigned class_index = slate_class_of_(48);
    enum { LIVE = 2000 };
    void *pad[200], *live[LIVE];
    for (unsigned i = 0; i < 200; i++)
        require((pad[i] = slate_alloc(48)) != NULL);
    for (unsigned i = 0; i < 5; i++)
        free_one_twice(class_index);
    /* Harmless: no place is given to two. */
    for (unsigned i = 0; i < LIVE; i++) {
        require((live[i] = slate_alloc(48)) != NULL);
        memset(live[i], (int)i, 48);
    }
    qsort(live, LIVE, sizeof *live, by_address);
    for (unsigned i = 1; i < LIVE; i++)
        require(live[i] != live[i - 1]);
    for (unsigned i = 0; i < 200; i++)
        slate_free(pad[i]);
}

START_TEST(double_free_is_told_once)
{
    struct child_end end;
    run_child(free_twice, &end);
    ck_assert_msg(end.status == 0, "status %d: %s", end.status, end.text);
    ck_assert_msg(lines_of(end.text) == 1, "one report is wanted: \"%s\"", end.text);
    ck_assert(strstr(end.text, "freed twice") != NULL);
}
END_TEST

static void free_twice_in_a_row(void)
{
    start(SLATEI_SWITCH);
    void *volatile block = slate_alloc(48);
    require(block != NULL);
    slate_free(block);
    slate_free(block); /* the fault: the list is a ring now */
    alarm(5);
    slate_purge();
    require(slate_alloc(48) != NULL);
}

START_TEST(double_free_in_a_row_ends)
{
    struct child_end end;
    run_child(free_twice_in_a_row, &end);
    ck_assert_msg(end.status == 0, "a purge after it does not end: status %d: %s", end.status,
                  end.text);
    ck_assert_uint_eq(lines_of(end.text), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slice");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, classes);
    tcase_add_test(tests, reciprocals);
    tcase_add_test(tests, units_of_slices);
    tcase_add_test(tests, units_of_the_pool);
    tcase_add_test(tests, units_in_order_lifo);
    tcase_add_test(tests, beyond_a_slice);
    tcase_add_test(tests, flush_keeps_the_newest);
    tcase_add_test(tests, lists_stay_bounded);
    tcase_add_test(tests, free_units_go_back);
    tcase_add_test(tests, flushes_return_units);
    tcase_add_test(tests, drain_in_slices);
    tcase_add_test(tests, drain_in_the_pool);
    tcase_add_test(tests, slow_path_drains);
    tcase_add_test(tests, zero_in_slices);
    tcase_add_test(tests, zero_in_the_pool);
    tcase_add_test(tests, double_free_is_told_once);
    tcase_add_test(tests, double_free_in_a_row_ends);
    return run_suite(suite);
}
