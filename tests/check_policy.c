/* tests/check_policy.c - which pages are small and which are huge, and the two steps of the limit.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "policy.h"

#include "arena.h"
#include "check_support.h"
#include "os.h"
#include "pool.h"
#include "reserve.h"
#include "tunables.h"

static struct {
    enum slatei_policy policy;
    size_t switch_bytes;
} setting;

static size_t huge_page(void) { return slatei_os_huge_page_size(); }

static size_t wanted_small_end(void)
{
    if (setting.policy == SLATEI_NEVER)
        return SIZE_MAX;
    if (setting.policy == SLATEI_ALWAYS)
        return 0;
    return (setting.switch_bytes + huge_page() - 1) / huge_page() * huge_page();
}

/* ---- a slice of the test's own: the part of the last arena's last class, which nobody uses */

static struct slatei_slice own;

static void make_own_slice(enum slatei_policy policy, size_t switch_bytes)
{
    setting.policy = slatei_settings.policy = policy;
    setting.switch_bytes = slatei_settings.switch_bytes = switch_bytes;
    slatei_settings.slice_bytes = 64 * MIB;
    slatei_settings.arenas = 4;
    slatei_os_start();
    require_equal(slatei_reserve_start(), 0);
    if (slatei_reserve.slice_span == 0) { /* policy shared: a part of the pool instead */
        own.base = slatei_reserve.base;
        own.span = 64 * MIB;
    } else {
        own.base = slatei_reserve.base + slatei_reserve.span - slatei_reserve.slice_span;
        own.span = slatei_reserve.slice_span;
    }
}

static const struct mapping_seen *mapping_of(const void *address)
{
    static struct mapping_seen seen[8192];
    size_t count = read_mappings(seen, sizeof seen / sizeof *seen);
    require_at_most(count, sizeof seen / sizeof *seen);
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)address - seen[i].start < seen[i].end - seen[i].start)
            return &seen[i];
    return NULL;
}

static void raise_to(size_t top)
{
    size_t old = own.limit;
    require_equal(slatei_policy_raise(&own, top), 0);
    require_at_least(own.limit, top);
    require_at_least(own.limit, old);
    require_at_most(own.limit, own.span);
    /* At most doubled, but for whole huge pages and a first step. */
    size_t most = old * 2 > top ? old * 2 : top;
    require_at_most(own.limit, most + huge_page());
    if (own.limit > old) {
        own.base[own.limit - 1] = 1;
        require_equal(own.base[old], 0);
        own.base[old] = 1;
    }
}

/* A granule more each time, from nothing to the end of the slice. */
static void raise_by_granules(void)
{
    make_own_slice(setting.policy, setting.switch_bytes);
    size_t small_end = wanted_small_end();
    require_equal(slatei_policy_small_end(), small_end);
    bool stopped = false;
    unsigned steps = 0;
    while (own.limit < own.span) {
        raise_to(own.limit + SLATEI_GRANULE);
        steps++;
        stopped = stopped || own.limit == small_end;
        if (own.limit > small_end)
            require(own.limit % huge_page() == 0);
    }
    require_equal(own.limit, own.span);
    require(small_end == 0 || small_end >= own.span || stopped);
    require_at_most(steps, 40);
    if (SANITIZED || RUNNING_ON_VALGRIND || no_huge_pages() != NULL)
        return;
    for (size_t at = 0; at < own.span; at += MIB) {
        const struct mapping_seen *seen = mapping_of(own.base + at);
        require(seen != NULL);
        require(seen->usable);
        require_equal(seen->huge, at >= small_end);
        require_equal(seen->small, at < small_end);
    }
}

START_TEST(two_steps)
{
    static const size_t points[] = {0, 1, 2 * MIB, 3 * MIB, 8 * MIB, 62 * MIB, 64 * MIB, GIB};
    for (setting.policy = SLATEI_NEVER; setting.policy <= SLATEI_SHARED; setting.policy++)
        for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
            struct child_end end;
            setting.switch_bytes = points[i];
            run_child(raise_by_granules, &end);
            ck_assert_msg(end.status == 0, "policy %s, switch point %zu: status %d: %s",
                          slatei_policy_name(setting.policy), points[i], end.status, end.text);
        }
}
END_TEST

CHILD_TEST(one_large_step)
{
    make_own_slice(SLATEI_SWITCH, 4 * MIB);
    raise_to(21 * MIB + 4096);
    require_equal(own.limit % huge_page(), 0);
    if (no_huge_pages() == NULL && !slow_here()) {
        require(mapping_of(own.base)->small);
        require(mapping_of(own.base + 4 * MIB - 1)->small);
        require(mapping_of(own.base + 4 * MIB)->huge);
        require(mapping_of(own.base + own.span - 1)->huge); /* the rest too */
    }
    raise_to(own.span);
    require_equal(own.limit, own.span);
}

/* A refused step leaves the slice as it was; a step is made smaller if that helps. */
CHILD_TEST(refused)
{
    SKIP_UNDER_TOOLS();
    make_own_slice(SLATEI_NEVER, 0);
    raise_to(8 * MIB);
    size_t limit = own.limit;
    limit_growth(RLIMIT_DATA, 3 * MIB);
    struct slatei_slice before = own;
    errno = 55;
    require_equal(slatei_policy_raise(&own, limit + 4 * MIB), ENOMEM);
    require_equal(errno, 55);
    require(memcmp(&before, &own, sizeof own) == 0);
    require_equal(slatei_policy_raise(&own, limit + MIB), 0); /* not doubled */
    require_at_least(own.limit, limit + MIB);
    require_at_most(own.limit, limit + 3 * MIB);
    own.base[own.limit - 1] = 1;
}

/* ---- giving back */

static char expected(size_t at) { return (char)(at >> 12 | 1); }

/* Gives back [from, to) of a slice that is all touched; `most` bytes of it can go. */
static void check_give_back(size_t from, size_t to, size_t least_gone, size_t gone_from)
{
    size_t size = 24 * MIB, page = slatei_os_page_size();
    for (size_t at = 0; at < size; at += page)
        own.base[at] = expected(at);
    size_t given = slatei_policy_give_back(&own, from, to);
    require_equal(given, least_gone);
    for (size_t at = 0; at < size; at += page) {
        bool gone = at - gone_from < given;
        require_equal(own.base[at], gone ? 0 : expected(at));
    }
}

CHILD_TEST(give_back)
{
    make_own_slice(SLATEI_SWITCH, 8 * MIB);
    raise_to(24 * MIB);
    size_t page = slatei_os_page_size();
    /* Below: whole pages. */
    check_give_back(0, page, page, 0);
    check_give_back(5 * page, 9 * page, 4 * page, 5 * page);
    check_give_back(5 * page + 1, 9 * page - 1, 2 * page, 6 * page);
    check_give_back(5 * page + 1, 6 * page + 5, 0, 0);
    check_give_back(7 * page, 7 * page, 0, 0);
    check_give_back(0, 8 * MIB, 8 * MIB, 0);
    /* Above: whole huge pages. */
    check_give_back(8 * MIB, 10 * MIB, 2 * MIB, 8 * MIB);
    check_give_back(8 * MIB, 10 * MIB - page, 0, 0);
    check_give_back(8 * MIB + page, 10 * MIB, 0, 0);
    check_give_back(9 * MIB, 15 * MIB, 4 * MIB, 10 * MIB);
    check_give_back(9 * MIB, 11 * MIB, 0, 0);
    check_give_back(20 * MIB, 24 * MIB, 4 * MIB, 20 * MIB);
    /* Across: each side by its own rule. */
    check_give_back(7 * MIB + page, 9 * MIB, MIB - page, 7 * MIB + page);
    check_give_back(7 * MIB + page, 13 * MIB, 5 * MIB - page, 7 * MIB + page);
}

CHILD_TEST(give_back_never)
{
    make_own_slice(SLATEI_NEVER, 8 * MIB);
    raise_to(24 * MIB);
    size_t page = slatei_os_page_size();
    check_give_back(9 * MIB + page, 9 * MIB + 3 * page, 2 * page, 9 * MIB + page);
    check_give_back(7 * MIB + page, 13 * MIB + page, 6 * MIB, 7 * MIB + page);
}

CHILD_TEST(give_back_always)
{
    make_own_slice(SLATEI_ALWAYS, 8 * MIB);
    raise_to(24 * MIB);
    size_t page = slatei_os_page_size();
    check_give_back(page, 2 * MIB, 0, 0);
    check_give_back(page, 5 * MIB, 2 * MIB, 2 * MIB);
    check_give_back(0, 4 * MIB + page, 4 * MIB, 0);
}

/* ---- the whole heap */

/* Past the switch point in two class slices and the pool, or in the pool alone. */
static void grow_heap(void)
{
    slatei_settings.policy = setting.policy;
    slatei_settings.switch_bytes = setting.switch_bytes;
    slatei_settings.slice_bytes = 64 * MIB;
    slatei_settings.arenas = 4;
    size_t bytes = setting.switch_bytes + 3 * MIB;
    for (size_t i = 0; i < bytes; i += 512)
        memset(slate_alloc(512), 1, 512);
    for (size_t i = 0; i < bytes; i += 4096)
        memset(slate_alloc(4096), 1, 4096);
    for (size_t i = 0; i < bytes; i += 300000)
        memset(slate_alloc(300000), 1, 300000);
    memset(slate_alloc(100), 1, 100); /* and one that stays below it */
}

/* The part [start, start + size) of a mapping has the flags of its place in a slice. */
static void check_flags(const struct mapping_seen *seen, uintptr_t start, uintptr_t end,
                        const struct slatei_slice *slice)
{
    uintptr_t base = (uintptr_t)slice->base;
    uintptr_t from = start > base ? start : base;
    uintptr_t to = end < base + slice->span ? end : base + slice->span;
    size_t small_end = wanted_small_end();
    if (from >= to)
        return;
    size_t huge_from = slice->limit > small_end ? small_end : SIZE_MAX;
    if (to - base <= huge_from)
        require(seen->small && !seen->huge);
    else if (from - base >= huge_from)
        require(seen->huge && !seen->small);
    else
        child_fails(__FILE__, __LINE__, "a mapping ends at the switch point");
}

static void check_heap_flags(void)
{
    static struct mapping_seen seen[8192];
    size_t count = read_mappings(seen, sizeof seen / sizeof *seen);
    require_at_most(count, sizeof seen / sizeof *seen);
    struct slatei_pool_counts pool;
    slatei_pool_count(&pool);
    const struct slatei_slice pool_slice = {slatei_reserve.base, slatei_reserve.pool_span, pool.top,
                                            pool.committed};
    require_equal((uintptr_t)pool_slice.base % huge_page(), 0);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t from = seen[i].start, to = seen[i].end;
        uintptr_t base = (uintptr_t)slatei_reserve.base;
        if (to <= base || from >= base + slatei_reserve.span)
            continue;
        found++;
        check_flags(&seen[i], from, to, &pool_slice);
        for (size_t number = 0; slatei_reserve.slice_span != 0 && number < slatei_reserve.arenas;
             number++) {
            const struct slatei_arena *arena = slatei_arena_at(number);
            for (unsigned j = 0; j < SLATE_CLASSES; j++) {
                /* Of an arena that was never used, all is on small pages. */
                struct slatei_slice slice = {slatei_reserve.base + slatei_reserve.pool_span +
                                                 (number * SLATE_CLASSES + j) *
                                                     slatei_reserve.slice_span,
                                             slatei_reserve.slice_span, 0, 0};
                if (arena != NULL) {
                    require_equal(arena->slices[j].base, slice.base);
                    require_equal(arena->slices[j].span, slice.span);
                    slice = arena->slices[j];
                }
                require_equal((uintptr_t)slice.base % huge_page(), 0);
                check_flags(&seen[i], from, to, &slice);
            }
        }
    }
    require_at_least(found, 1);
}

static void check_heap(void)
{
    grow_heap();
    check_heap_flags();
}

START_TEST(flags_of_the_heap)
{
    SKIP_UNDER_TOOLS();
    const char *reason = no_huge_pages();
    SKIP_IF(reason != NULL, reason);
    static const size_t points[] = {0, 4 * MIB, 8 * MIB};
    for (setting.policy = SLATEI_NEVER; setting.policy <= SLATEI_SHARED; setting.policy++)
        for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
            struct child_end end;
            setting.switch_bytes = points[i];
            run_child(check_heap, &end);
            ck_assert_msg(end.status == 0, "policy %s, switch point %zu: status %d: %s",
                          slatei_policy_name(setting.policy), points[i], end.status, end.text);
        }
}
END_TEST

/* Units follow each other without a gap across the switch point, on both its sides. */
static void check_contiguous(void)
{
    grow_heap();
    size_t first = 1, last, end = setting.switch_bytes + MIB;
    unsigned value = 0;
    if (slatei_reserve.slice_span != 0) {
        const struct slatei_arena *arena = slatei_arena_at(0);
        unsigned class_index = slate_class_of_(512);
        first = slatei_granule_of(arena->slices[class_index].base);
        value = arena->front.tag + class_index;
        require_at_least(arena->slices[class_index].top, end);
        end += (size_t)(arena->slices[class_index].base - slatei_reserve.base);
    }
    last = end >> SLATE_GRANULE_SHIFT_;
    for (size_t granule = first; granule < last; granule++) {
        require(slatei_reserve.map[granule] != SLATEI_MAP_FREE);
        if (value != 0)
            require_equal(slatei_reserve.map[granule], value);
    }
}

START_TEST(contiguous_across_the_switch)
{
    for (setting.policy = SLATEI_SWITCH; setting.policy <= SLATEI_SHARED; setting.policy++) {
        struct child_end end;
        setting.switch_bytes = 4 * MIB;
        run_child(check_contiguous, &end);
        ck_assert_msg(end.status == 0, "policy %s: status %d: %s",
                      slatei_policy_name(setting.policy), end.status, end.text);
    }
}
END_TEST

#define NO_HUGE_PAGE_LEFT 91

/* The first bytes beyond the switch point are on a huge page; none is before it. */
static void check_first_huge_page(void)
{
    size_t fallbacks = huge_fallbacks();
    grow_heap();
    char *base = slatei_reserve.base;
    if (slatei_reserve.slice_span != 0)
        base = slatei_arena_at(0)->slices[slate_class_of_(512)].base;
    const struct mapping_seen *seen = mapping_of(base + wanted_small_end());
    require_equal(seen->start, base + wanted_small_end());
    if (seen->anon_huge == 0 && huge_fallbacks() != fallbacks)
        _exit(NO_HUGE_PAGE_LEFT);
    require_at_least(seen->anon_huge, huge_page());
    if (wanted_small_end() > 0)
        require_equal(mapping_of(base)->anon_huge, 0);
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_at_least(stats.huge, huge_page());
    require_at_most(stats.huge, stats.resident);
}

START_TEST(first_huge_page)
{
    SKIP_UNDER_TOOLS();
    SKIP_IF(no_huge_pages() != NULL, no_huge_pages());
    for (setting.policy = SLATEI_ALWAYS; setting.policy <= SLATEI_SHARED; setting.policy++) {
        struct child_end end;
        setting.switch_bytes = 4 * MIB;
        run_child(check_first_huge_page, &end);
        SKIP_IF(WIFEXITED(end.status) && WEXITSTATUS(end.status) == NO_HUGE_PAGE_LEFT,
                "the kernel has no huge page left");
        ck_assert_msg(end.status == 0, "policy %s: status %d: %s",
                      slatei_policy_name(setting.policy), end.status, end.text);
    }
}
END_TEST

CHILD_TEST(no_huge_page_under_never)
{
    SKIP_UNDER_TOOLS();
    setting.policy = SLATEI_NEVER;
    setting.switch_bytes = 4 * MIB;
    grow_heap();
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_equal(stats.huge, 0);
}

/* How much of a new block is in memory before anything is written to it. */
static size_t resident_of_new(size_t size)
{
    size_t resident = 0;
    char *block = slate_alloc(size);
    require(block != NULL);
    require_equal(slatei_os_resident(block, size, &resident), 0);
    return resident;
}

CHILD_TEST(large_blocks_come_whole)
{
    SKIP_UNDER_TOOLS();
    slatei_settings.policy = SLATEI_SHARED;
    slatei_settings.switch_bytes = 4 * MIB;
    require_equal(resident_of_new(128 * KIB), 0); /* where a program starts */
    require_equal(resident_of_new(512 * KIB), 0); /* too large */
    size_t resident = resident_of_new(256 * KIB);
    SKIP_IF(resident == 0, "this kernel has no MADV_POPULATE_WRITE");
    require_equal(resident, 256 * KIB);
    require_equal(resident_of_new(20 * KIB), 20 * KIB);
    require_equal(resident_of_new(260 * KIB), 0);
    require(slate_alloc(4 * MIB) != NULL);
    require_equal(resident_of_new(256 * KIB), 0); /* on huge pages */
}

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, two_steps);
    tcase_add_test(tests, one_large_step);
    tcase_add_test(tests, refused);
    tcase_add_test(tests, give_back);
    tcase_add_test(tests, give_back_never);
    tcase_add_test(tests, give_back_always);
    tcase_add_test(tests, flags_of_the_heap);
    tcase_add_test(tests, contiguous_across_the_switch);
    tcase_add_test(tests, first_huge_page);
    tcase_add_test(tests, no_huge_page_under_never);
    tcase_add_test(tests, large_blocks_come_whole);
    return run_suite(suite);
}
