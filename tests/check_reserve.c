/* tests/check_reserve.c - the reservation: layout, tables, and the ladder under limits.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "reserve.h"

#include <pthread.h>

#include "arena.h"
#include "check_support.h"
#include "os.h"
#include "pool.h"
#include "slice.h"
#include "tunables.h"

/* The reservation alone, without arenas and pool. */
static void reserve_only(enum slatei_policy policy, size_t slice_bytes, size_t arenas)
{
    slatei_settings.policy = policy;
    slatei_settings.slice_bytes = slice_bytes;
    slatei_settings.arenas = arenas;
    slatei_os_start();
    require_equal(slatei_reserve_start(), 0);
}

static void check_layout(void)
{
    const struct slatei_reserve *r = &slatei_reserve;
    size_t huge = slatei_os_huge_page_size(), granules = r->span >> SLATE_GRANULE_SHIFT_;
    require(r->base != NULL);
    require_equal(r->span, r->pool_span + r->arenas * SLATE_CLASSES * r->slice_span);
    require_equal((uintptr_t)r->base % huge, 0);
    require_equal(r->pool_span % huge, 0);
    require_equal(r->slice_span % huge, 0);
    require_at_least(r->pool_span, 16 * MIB);
    require(granules < UINT64_C(1) << 32);
    require_at_least(r->arenas, 2);
    /* The granule map has 16 bits for an arena's number and a tag. */
    require_at_most(r->arenas << SLATE_MAP_SHIFT_, UINT16_MAX + 1);
    /* The tables come first, none overlaps. */
    require_at_least((char *)r->unit_offset, (char *)(r->descriptor + granules));
    require_at_least(r->arena_area, (char *)(r->unit_offset + granules));
    require_at_least((char *)r->map, r->arena_area + r->arenas * SLATEI_ARENA_STRIDE);
    require_at_least(r->base, (char *)(r->map + granules));
}

CHILD_TEST(layout_under_a_data_limit)
{
    SKIP_UNDER_TOOLS();
    struct rlimit limit = {GIB, RLIM_INFINITY};
    require_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    reserve_only(SLATEI_SWITCH, 4 * GIB, 64);
    check_layout();
    require_equal(slatei_reserve.slice_span, 0);
}

CHILD_TEST(layout_with_slices)
{
    reserve_only(SLATEI_SWITCH, 4 * GIB, 64);
    check_layout();
    SKIP_UNDER_TOOLS();
    require_equal(slatei_reserve.slice_span, 4 * GIB);
    require_equal(slatei_reserve.arenas, 64);
}

CHILD_TEST(layout_of_the_pool_alone)
{
    reserve_only(SLATEI_SHARED, 4 * GIB, 64);
    check_layout();
    require_equal(slatei_reserve.slice_span, 0);
    require_equal(slatei_reserve.arenas, 64);
    require_equal(slatei_reserve.span, slatei_reserve.pool_span);
}

CHILD_TEST(layout_least)
{
    reserve_only(SLATEI_NEVER, 16 * MIB, 2);
    check_layout();
    require_equal(slatei_reserve.slice_span, 16 * MIB);
    require_equal(slatei_reserve.arenas, 2);
}

/* More than the address space has: it falls, and is no error. */
CHILD_TEST(layout_most)
{
    reserve_only(SLATEI_ALWAYS, 64 * GIB, 1023);
    check_layout();
    require_at_least(slatei_reserve.slice_span, 16 * MIB);
    require_at_least(slatei_reserve.arenas, 4);
}

CHILD_TEST(addresses)
{
    reserve_only(SLATEI_SWITCH, 32 * MIB, 8);
    const char *base = slatei_reserve.base;
    size_t span = slatei_reserve.span;
    require(slatei_in_reserve(base));
    require(slatei_in_reserve(base + span - 1));
    require(!slatei_in_reserve(base - 1));
    require(!slatei_in_reserve(base + span));
    require(!slatei_in_reserve(NULL));
    require(!slatei_in_reserve(&span));
    require_equal(slatei_granule_of(base + SLATEI_GRANULE - 1), 0);
    for (size_t granule = 0; granule < span >> SLATE_GRANULE_SHIFT_; granule += 977) {
        require_equal(slatei_granule_of(slatei_address_of(granule)), granule);
        require_equal(slatei_granule_of(slatei_address_of(granule) + 4095), granule);
    }
    require_equal(slatei_round_up(0, 4096), 0);
    require_equal(slatei_round_up(1, 4096), 4096);
    require_equal(slatei_round_up(4096, 4096), 4096);
}

/* Whatever has been covered can be written to, from any start, and is zero at first. */
CHILD_TEST(tables_cover)
{
    reserve_only(SLATEI_SWITCH, 64 * MIB, 4);
    struct random random = {seed_of_run()};
    size_t slices[] = {0, slatei_reserve.pool_span,
                       slatei_reserve.pool_span + 5 * slatei_reserve.slice_span,
                       slatei_reserve.span - slatei_reserve.slice_span};
    for (size_t i = 0; i < 4; i++) {
        size_t start = slices[i], limit = 0;
        size_t span = i == 0 ? slatei_reserve.pool_span : slatei_reserve.slice_span;
        while (limit < span && limit < 128 * MIB) {
            size_t next = limit + (1 + below(&random, 2000)) * SLATEI_GRANULE;
            if (next > span)
                next = span;
            require_equal(slatei_reserve_cover(start, span, limit, next), 0);
            for (size_t at = limit; at < next; at += SLATEI_GRANULE) {
                size_t granule = (start + at) >> SLATE_GRANULE_SHIFT_;
                struct slatei_descriptor *descriptor = &slatei_reserve.descriptor[granule];
                require_equal(slatei_reserve.map[granule], 0);
                require_equal(slatei_reserve.unit_offset[granule], 0);
                require(all_zero(descriptor, sizeof *descriptor));
                slatei_reserve.map[granule] = 0xffff;
                slatei_reserve.unit_offset[granule] = 0xff;
                memset(descriptor, 0xff, sizeof *descriptor);
            }
            limit = next;
        }
    }
}

/* Only what is covered is usable: tables for all would be too much under strict overcommit. */
CHILD_TEST(tables_are_not_usable_at_first)
{
    SKIP_UNDER_TOOLS();
    reserve_only(SLATEI_SWITCH, 4 * GIB, 64);
    static struct mapping_seen seen[4096];
    size_t count = read_mappings(seen, 4096);
    require_at_most(count, 4096);
    uintptr_t from = (uintptr_t)slatei_reserve.descriptor;
    uintptr_t to = (uintptr_t)slatei_reserve.base + slatei_reserve.span;
    for (size_t i = 0; i < count; i++)
        require(seen[i].end <= from || seen[i].start >= to || !seen[i].usable);
}

/* ---- the ladder */

static struct {
    enum slatei_policy policy;
    size_t limit;
} ladder;

/* Nothing is written to these blocks: they may be more than the machine has. */
static void *taken[1 << 20];
static size_t taken_count;

static size_t take_until_refused(size_t size)
{
    for (taken_count = 0; taken_count < sizeof taken / sizeof *taken; taken_count++) {
        errno = 0;
        if ((taken[taken_count] = slate_alloc(size)) == NULL) {
            require_equal(errno, ENOMEM);
            break;
        }
    }
    return taken_count * size;
}

static void give_all(void)
{
    while (taken_count > 0)
        slate_free(taken[--taken_count]);
}

static void climb(void)
{
    size_t limit = ladder.limit, used = status_bytes("VmSize");
    struct rlimit rlimit = {limit, limit};
    require_equal(setrlimit(RLIMIT_AS, &rlimit), 0);
    slatei_settings.policy = ladder.policy;
    void *first = slate_alloc(1);
    require(first != NULL);
    size_t reserved = status_bytes("VmSize") - used;
    check_layout();
    require_at_most(reserved, limit / 4 * 3);
    require_at_least(reserved, limit / 4);
    /* Something of every size. */
    void *blocks[SLATE_CLASSES];
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        require((blocks[i] = slate_alloc(slate_class_size_(i))) != NULL);
        memset(blocks[i], (int)i, slate_class_size_(i));
    }
    /* All that is left in large blocks, and the heap still works. */
    size_t size = limit / 512;
    size_t bytes = take_until_refused(size);
    require_at_least(bytes, limit / 3);
    slate_free(taken[taken_count - 1]);
    require((taken[taken_count - 1] = slate_alloc(size)) != NULL);
    give_all();
    /* Again: nothing was lost.  A mapping of the process itself may have come in between. */
    require_at_least(take_until_refused(size) + bytes / 16, bytes);
    give_all();
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        unsigned char *block = blocks[i];
        for (size_t j = 0; j < slate_class_size_(i); j++)
            require_equal(block[j], i);
        slate_free(block);
    }
    slate_free(first);
}

START_TEST(ladder_of_limits)
{
    SKIP_UNDER_TOOLS();
    for (ladder.policy = SLATEI_NEVER; ladder.policy <= SLATEI_SHARED; ladder.policy++)
        for (ladder.limit = 64 * MIB; ladder.limit <= 64 * GIB; ladder.limit *= 2) {
            struct child_end end;
            run_child(climb, &end);
            ck_assert_msg(end.status == 0, "policy %s, limit %zu MiB: status %d: %s",
                          slatei_policy_name(ladder.policy), ladder.limit >> 20, end.status,
                          end.text);
        }
}
END_TEST

/* Limits that are no power of two, around the steps of the ladder. */
START_TEST(ladder_of_odd_limits)
{
    SKIP_UNDER_TOOLS();
    static const size_t limits[] = {65 * MIB + 4096,         100 * MIB, 5 * GIB - 4096, 6 * GIB,
                                    11 * GIB + 12345 * 4096, 48 * GIB};
    for (ladder.policy = SLATEI_SWITCH; ladder.policy <= SLATEI_SHARED; ladder.policy++)
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            struct child_end end;
            ladder.limit = limits[i];
            run_child(climb, &end);
            ck_assert_msg(end.status == 0, "policy %s, limit %zu KiB: status %d: %s",
                          slatei_policy_name(ladder.policy), ladder.limit >> 10, end.status,
                          end.text);
        }
}
END_TEST

/* Small blocks alone can use a sensible share of a limit as well. */
static void fill_with_small(void)
{
    struct rlimit rlimit = {ladder.limit, ladder.limit};
    require_equal(setrlimit(RLIMIT_AS, &rlimit), 0);
    slatei_settings.policy = ladder.policy;
    require_at_least(take_until_refused(8192), ladder.limit / 4);
    slate_free(taken[0]);
    void *again = slate_alloc(8192);
    require(again != NULL);
    slate_free(again);
}

START_TEST(small_blocks_fill_a_limit)
{
    SKIP_UNDER_TOOLS();
    for (ladder.policy = SLATEI_SWITCH; ladder.policy <= SLATEI_SHARED; ladder.policy++)
        for (ladder.limit = 64 * MIB; ladder.limit <= 16 * GIB; ladder.limit *= 4) {
            struct child_end end;
            run_child(fill_with_small, &end);
            ck_assert_msg(end.status == 0, "policy %s, limit %zu MiB: status %d: %s",
                          slatei_policy_name(ladder.policy), ladder.limit >> 20, end.status,
                          end.text);
        }
}
END_TEST

static void refused_altogether(void)
{
    limit_growth(RLIMIT_AS, 8 * MIB);
    void *volatile none = NULL;
    for (unsigned i = 0; i < 3; i++) {
        for (size_t size = 1; size < GIB; size *= 8) {
            errno = 0;
            require(slate_alloc(size) == NULL);
            require_equal(errno, ENOMEM);
            errno = 0;
            require(slate_zalloc(size) == NULL);
            require_equal(errno, ENOMEM);
            errno = 0;
            require(slate_realloc(none, size) == NULL);
            require_equal(errno, ENOMEM);
            errno = 0;
            require(slate_aligned_alloc(4096, size) == NULL);
            require_equal(errno, ENOMEM);
        }
        errno = 77;
        slate_free(none);
        require_equal(slate_usable_size(none), 0);
        require_equal(slate_purge(), 0);
        struct slate_stats stats;
        require_equal(slate_stats(&stats, sizeof stats), 0);
        require_equal(stats.reserved, 0);
        require_equal(errno, 77);
    }
}

START_TEST(too_small_a_limit)
{
    SKIP_UNDER_TOOLS();
    struct child_end end;
    run_child(refused_altogether, &end);
    ck_assert_msg(end.status == 0, "status %d: %s", end.status, end.text);
    ck_assert_msg(lines_of(end.text) == 1, "one report is wanted: %s", end.text);
    ck_assert(strstr(end.text, "slate: ") == end.text);
    ck_assert(strstr(end.text, "ulimit -v") != NULL);
}
END_TEST

/* ---- the granule map of every granule */

static pthread_barrier_t barrier;

static void *work(void *number)
{
    struct random random = {(uintptr_t)number};
    enum { SLOTS = 500 };
    void *slot[SLOTS] = {NULL};
    for (unsigned i = 0; i < 20000; i++) {
        size_t k = below(&random, SLOTS);
        slate_free(slot[k]);
        slot[k] = slate_alloc(skewed(&random, 16));
        require(slot[k] != NULL);
    }
    pthread_barrier_wait(&barrier); /* all blocks live */
    pthread_barrier_wait(&barrier);
    return number;
}

/* Returns the granule behind the unit or run that begins at `first`. */
static size_t check_granules(size_t first)
{
    unsigned value = slatei_reserve.map[first];
    unsigned kind = value & SLATEI_MAP_MASK;
    const struct slatei_descriptor *found = &slatei_reserve.descriptor[first];
    size_t end = first;
    if (kind >= SLATEI_MAP_CLASS && kind < SLATEI_MAP_CLASS + SLATE_CLASSES) {
        unsigned class_index = kind - SLATEI_MAP_CLASS;
        const struct slatei_class *class = &slatei_classes[class_index];
        require_equal(found->unit.class_index, class_index);
        require_equal(found->unit.capacity, class->capacity);
        for (; end < first + class->granules; end++) {
            require_equal(slatei_reserve.map[end], value);
            require_equal(slatei_reserve.unit_offset[end], end - first);
        }
        struct slatei_arena *owner = slatei_arena_of(value >> SLATE_MAP_SHIFT_);
        require_equal(owner->front.tag + class_index, value);
        for (unsigned i = 0; i < class->capacity; i++)
            require_equal(
                slate_usable_size(slatei_address_of(first) + i * slate_class_size_(class_index)),
                slate_class_size_(class_index));
    } else if (kind == SLATEI_MAP_LARGE) {
        require_at_least(found->large.length, 1);
        for (end = first + 1; end < first + found->large.length; end++)
            require_equal(slatei_reserve.map[end] & SLATEI_MAP_MASK, SLATEI_MAP_INSIDE);
        require_equal(slate_usable_size(slatei_address_of(first)), (end - first)
                                                                       << SLATE_GRANULE_SHIFT_);
    } else {
        require_equal(kind, SLATEI_MAP_FREE);
        require_at_least(found->run.length, 1);
        for (; end < first + found->run.length; end++)
            require_equal(slatei_reserve.map[end], SLATEI_MAP_FREE);
        require_equal(slatei_reserve.descriptor[end - 1].run.length, found->run.length);
    }
    return end;
}

static void check_map(enum slatei_policy policy)
{
    slatei_settings.policy = policy;
    uint64_t seed = seed_of_run();
    pthread_barrier_init(&barrier, NULL, 5);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        require_equal(pthread_create(&threads[i], NULL, work, (void *)(seed * 4 + i)), 0);
    pthread_barrier_wait(&barrier);
    struct slatei_pool_counts pool;
    slatei_pool_count(&pool);
    size_t top = pool.top >> SLATE_GRANULE_SHIFT_, granule = 1;
    while (granule < top)
        granule = check_granules(granule);
    require_equal(granule, top);
    size_t units = 0;
    for (size_t i = 0; i < slatei_reserve.arenas && slatei_reserve.slice_span != 0; i++) {
        struct slatei_arena *arena = slatei_arena_at(i);
        for (unsigned class_index = 0; arena != NULL && class_index < SLATE_CLASSES;
             class_index++) {
            const struct slatei_slice *slice = &arena->slices[class_index];
            size_t first = slatei_granule_of(slice->base);
            size_t end = first + (slice->top >> SLATE_GRANULE_SHIFT_);
            for (granule = first; granule < end; units++) {
                require_equal(slatei_reserve.map[granule], arena->front.tag + class_index);
                granule = check_granules(granule);
            }
            require_equal(granule, end);
        }
    }
    require(policy == SLATEI_SHARED || units > 4 * 20);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

CHILD_TEST(map_agrees_with_slices) { check_map(SLATEI_SWITCH); }

CHILD_TEST(map_agrees_with_the_pool) { check_map(SLATEI_SHARED); }

int main(void)
{
    Suite *suite = suite_create("reserve");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, layout_under_a_data_limit);
    tcase_add_test(tests, layout_with_slices);
    tcase_add_test(tests, layout_of_the_pool_alone);
    tcase_add_test(tests, layout_least);
    tcase_add_test(tests, layout_most);
    tcase_add_test(tests, addresses);
    tcase_add_test(tests, tables_cover);
    tcase_add_test(tests, tables_are_not_usable_at_first);
    tcase_add_test(tests, ladder_of_limits);
    tcase_add_test(tests, ladder_of_odd_limits);
    tcase_add_test(tests, small_blocks_fill_a_limit);
    tcase_add_test(tests, too_small_a_limit);
    tcase_add_test(tests, map_agrees_with_slices);
    tcase_add_test(tests, map_agrees_with_the_pool);
    return run_suite(suite);
}
