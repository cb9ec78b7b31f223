/* tests/check_region.c - regions: blocks, marks, limits, deferred calls, what ends when.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "region.h"

#include <pthread.h>

#include "check_support.h"

#if defined(SLATE_TRACK_ADDRESS)
#define POISONED(address) (__asan_address_is_poisoned(address) != 0)
#define TRACKED 1
#else
#define POISONED(address) ((void)(address), true)
#define TRACKED 0
#endif

static struct slate_region *make(void)
{
    struct slate_region *region = slate_region_create();
    require(region != NULL);
    return region;
}

/* What the region tells of itself, which must fit together. */
static struct slate_region_stats stats_of(const struct slate_region *region)
{
    struct slate_region_stats stats;
    require_equal(slate_region_stats(region, &stats, sizeof stats), 0);
    require_at_most(stats.asked, stats.carved);
    require_at_most(stats.carved, stats.kept);
    require((stats.kept == 0) == (stats.chunks + stats.own == 0));
    return stats;
}

static size_t heap_in_use(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats.in_use + stats.own_mappings;
}

/* ---- blocks */

CHILD_TEST(an_empty_region)
{
    struct slate_region *region = make();
    struct slate_region_stats stats = stats_of(region);
    require_equal(stats.asked, 0);
    require_equal(stats.kept, 0);
    require_equal(stats.limit, SIZE_MAX);
    slate_region_reset(region, 0);
    slate_region_reset(region, SIZE_MAX);
    struct slate_region_mark mark = slate_region_mark(region);
    slate_region_rewind(region, mark);
    require_equal(stats_of(region).kept, 0);
    slate_region_destroy(region);
    slate_region_destroy(NULL);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(blocks_of_all_sizes)
{
    struct slate_region *region = make();
    enum { COUNT = 400 };
    char *blocks[COUNT];
    size_t sizes[COUNT], asked = 0;
    struct random random = {seed_of_run()};
    for (size_t i = 0; i < COUNT; i++) {
        sizes[i] = i < 40 ? i : skewed(&random, i % 10 == 0 ? 21 : 12);
        errno = 5;
        blocks[i] = slate_region_alloc(region, sizes[i]);
        require_equal(errno, 5);
        require(blocks[i] != NULL);
        require_equal((uintptr_t)blocks[i] % SLATE_REGION_ALIGN, 0);
        fill(blocks[i], sizes[i], i);
        asked += sizes[i];
        require_equal(stats_of(region).asked, asked);
    }
    for (size_t i = 0; i < COUNT; i++) {
        require(holds(blocks[i], sizes[i], sizes[i], i));
        for (size_t j = 0; j < i; j++) /* no two overlap, not even those of no bytes */
            require(blocks[i] + sizes[i] <= blocks[j] || blocks[j] + sizes[j] <= blocks[i]);
    }
    require(blocks[0] != blocks[1]);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* Constant sizes are inlined in another way than others; both must carve the same. */
CHILD_TEST(constant_sizes)
{
    struct slate_region *one = make(), *other = make();
    for (unsigned i = 0; i < 3000; i++) {
        volatile size_t sizes[] = {1, 8, 13, 48, 4096};
        char *a[] = {slate_region_alloc(one, 1), slate_region_alloc(one, 8),
                     slate_region_alloc(one, 13), slate_region_alloc(one, 48),
                     slate_region_alloc(one, 4096)};
        for (unsigned j = 0; j < 5; j++) {
            char *b = slate_region_alloc(other, sizes[j]);
            require(a[j] != NULL && b != NULL);
            memset(a[j], (int)i, sizes[j]);
            memset(b, (int)i, sizes[j]);
        }
        struct slate_region_stats x = stats_of(one), y = stats_of(other);
        require_equal(x.asked, y.asked);
        require_equal(x.carved, y.carved);
        require_equal(x.kept, y.kept);
    }
    slate_region_destroy(one);
    slate_region_destroy(other);
}

struct aligned_type {
    _Alignas(64) char bytes[100];
};

CHILD_TEST(alignments)
{
    struct slate_region *region = make();
    for (size_t alignment = 1; alignment <= MIB; alignment *= 2)
        for (size_t size = 0; size < 5000; size = size * 3 + 1) {
            char *block = slate_region_aligned(region, alignment, size);
            require(block != NULL);
            require_equal((uintptr_t)block % alignment, 0);
            memset(block, 1, size);
            stats_of(region);
        }
    for (unsigned i = 0; i < 100; i++) {
        require(slate_region_alloc(region, 8 + i % 3 * 8) != NULL);
        struct aligned_type *object = slate_region_new(region, struct aligned_type);
        require_equal((uintptr_t)object % 64, 0);
        memset(object, 2, sizeof *object);
        double *number = slate_region_new(region, double);
        *number = 1;
        long double *longer = slate_region_new(region, long double);
        require_equal((uintptr_t)longer % _Alignof(long double), 0);
        *longer = 2;
        stats_of(region);
    }
    volatile size_t wrong[] = {0, 3, 24, 2 * MIB, SIZE_MAX};
    for (unsigned i = 0; i < 5; i++) {
        errno = 0;
        require(slate_region_aligned(region, wrong[i], 8) == NULL);
        require_equal(errno, EINVAL);
    }
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(zeroed)
{
    struct slate_region *region = make();
    for (unsigned round = 0; round < 3; round++) {
        struct slate_region_mark mark = slate_region_mark(region);
        for (size_t size = 1; size < 3 * MIB; size = size * 2 + 3) {
            char *block = slate_region_zalloc(region, size);
            require(block != NULL && all_zero(block, size));
            memset(block, 0xff, size);
        }
        uint64_t *constant = slate_region_zalloc(region, 40);
        require(constant != NULL && all_zero(constant, 40));
        slate_region_rewind(region, mark);
        char *dirt = slate_region_alloc(region, 3000);
        memset(dirt, 0xee, 3000);
    }
    slate_region_destroy(region);
}

static char *format(struct slate_region *region, const char *text, ...)
{
    va_list arguments;
    va_start(arguments, text);
    char *made = slate_region_vprintf(region, text, arguments);
    va_end(arguments);
    return made;
}

CHILD_TEST(texts)
{
    struct slate_region *region = make();
    /* Without a chunk, within one, and across its end. */
    for (unsigned i = 0; i < 2000; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "name[%u] of %s", i, "something");
        size_t asked = stats_of(region).asked;
        char *text = slate_region_printf(region, "name[%u] of %s", i, "something");
        require(strcmp(text, expected) == 0);
        require_equal(stats_of(region).asked, asked + strlen(expected) + 1);
        require(strcmp(format(region, "%d%%", -5), "-5%") == 0);
        require(strcmp(slate_region_strdup(region, expected), expected) == 0);
        char *part = slate_region_strndup(region, expected, 4);
        require(strcmp(part, "name") == 0);
        require(strcmp(slate_region_strndup(region, "ab", 900), "ab") == 0);
    }
    require(*slate_region_strdup(region, "") == '\0');
    require(*slate_region_strndup(region, "x", 0) == '\0');
    require(*slate_region_printf(region, "%s", "") == '\0');
    char unterminated[3] = {'a', 'b', 'c'};
    require(strcmp(slate_region_strndup(region, unterminated, 3), "abc") == 0);
    char *large = slate_region_printf(region, "%0200000d", 7);
    require_equal(strlen(large), 200000);
    require(large[199999] == '7' && large[0] == '0');
    unsigned char data[300];
    fill(data, sizeof data, 9);
    require(memcmp(slate_region_memdup(region, data, sizeof data), data, sizeof data) == 0);
    require(slate_region_memdup(region, NULL, 0) != NULL);
    slate_region_destroy(region);
}

CHILD_TEST(too_large)
{
    struct slate_region *region = make();
    require(slate_region_alloc(region, 10) != NULL);
    struct slate_region_stats before = stats_of(region);
    volatile size_t sizes[] = {SIZE_MAX, SIZE_MAX - 7, (size_t)PTRDIFF_MAX, PTRDIFF_MAX - 4096};
    for (unsigned i = 0; i < 4; i++) {
        errno = 0;
        require(slate_region_alloc(region, sizes[i]) == NULL);
        require_equal(errno, ENOMEM);
        errno = 0;
        require(slate_region_aligned(region, 4096, sizes[i]) == NULL);
        require_equal(errno, ENOMEM);
        char *block = slate_region_alloc(region, 8);
        errno = 0;
        require(slate_region_realloc(region, block, 8, sizes[i]) == NULL);
        require_equal(errno, ENOMEM);
    }
    require_equal(stats_of(region).kept, before.kept);
    slate_region_destroy(region);
}

/* ---- change of size */

CHILD_TEST(the_newest_block_stays)
{
    struct slate_region *region = make();
    char *first = slate_region_alloc(region, 100);
    char *block = slate_region_alloc(region, 16);
    fill(block, 16, 1);
    /* Up and down within the chunk, byte by byte. */
    for (size_t size = 17; size < 2000; size++) {
        char *same = slate_region_realloc(region, block, size - 1, size);
        require_equal((uintptr_t)same, (uintptr_t)block);
        same[size - 1] = (char)size;
        require_equal(stats_of(region).asked, 100 + size);
    }
    require(holds(block, 16, 16, 1));
    for (size_t size = 1999; size-- > 0;)
        require(slate_region_realloc(region, block, size + 1, size) == block);
    require_equal(stats_of(region).asked, 100);
    require_at_most(stats_of(region).carved, 104 + 8);
    /* An older one moves, and only shrinks in place. */
    fill(first, 100, 2);
    require(slate_region_realloc(region, first, 100, 50) == first);
    char *moved = slate_region_realloc(region, first, 50, 120);
    require(moved != first && holds(moved, 100, 50, 2));
    require_equal(stats_of(region).asked, 120);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(a_block_of_its_own_grows)
{
    struct slate_region *region = make();
    size_t size = 100 * KIB;
    char *block = slate_region_alloc(region, size);
    fill(block, size, 3);
    require_equal(stats_of(region).own, 1);
    for (; size < 40 * MIB; size += size / 2 + 1) {
        char *grown = slate_region_realloc(region, block, size, size + size / 2 + 1);
        require(grown != NULL && holds(grown, 100 * KIB, 100 * KIB, 3));
        grown[size + size / 2] = 1;
        block = grown;
        struct slate_region_stats stats = stats_of(region);
        require_equal(stats.own, 1);
        require_equal(stats.asked, size + size / 2 + 1);
    }
    block = slate_region_realloc(region, block, size, 50 * KIB);
    require(holds(block, 100 * KIB, 50 * KIB, 3));
    require_equal(stats_of(region).asked, 50 * KIB);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(realloc_at_random)
{
    struct slate_region *region = make();
    struct random random = {seed_of_run()};
    enum { COUNT = 64 };
    char *blocks[COUNT] = {NULL};
    size_t sizes[COUNT] = {0}, asked = 0;
    for (unsigned i = 0; i < (slow_here() ? 2000u : 30000u); i++) {
        unsigned at = (unsigned)(i % 4 == 0 ? below(&random, COUNT) : 5);
        size_t size = skewed(&random, i % 50 == 0 ? 19 : 11);
        char *moved = slate_region_realloc(region, blocks[at], sizes[at], size);
        require(moved != NULL);
        require(holds(moved, sizes[at], sizes[at] < size ? sizes[at] : size, at));
        asked += size - sizes[at];
        blocks[at] = moved;
        sizes[at] = size;
        fill(moved, size, at);
        require_equal(stats_of(region).asked, asked);
        if (i % 5000 == 4999) {
            slate_region_reset(region, 64 * KIB);
            memset(blocks, 0, sizeof blocks);
            memset(sizes, 0, sizeof sizes);
            asked = 0;
        }
    }
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* ---- marks */

CHILD_TEST(rewind_within_a_chunk)
{
    struct slate_region *region = make();
    char *kept = slate_region_strdup(region, "kept");
    char *first = NULL;
    for (unsigned i = 0; i < 1000; i++) {
        struct slate_region_mark mark = slate_region_mark(region);
        require_equal(stats_of(region).marks, 1);
        char *block = slate_region_alloc(region, 1000);
        memset(block, (int)i, 1000);
        require(first == NULL || block == first); /* the same place again */
        first = block;
        slate_region_rewind(region, mark);
        require(POISONED(block) && POISONED(block + 999));
        require_equal(stats_of(region).marks, 0);
        require_equal(stats_of(region).asked, 5);
    }
    require_equal(stats_of(region).chunks, 1);
    require(strcmp(kept, "kept") == 0);
    slate_region_destroy(region);
}

CHILD_TEST(nested_marks)
{
    struct slate_region *region = make();
    enum { DEPTH = 200 };
    struct slate_region_mark marks[DEPTH];
    char *blocks[DEPTH];
    struct slate_region_stats at[DEPTH];
    size_t size_of[DEPTH];
    for (unsigned round = 0; round < 4; round++) {
        for (size_t i = 0; i < DEPTH; i++) {
            at[i] = stats_of(region);
            marks[i] = slate_region_mark(region);
            size_of[i] = i % 17 == 0 ? 70000 : i * 31 % 3000;
            blocks[i] = slate_region_alloc(region, size_of[i]);
            fill(blocks[i], size_of[i], i);
        }
        require_equal(stats_of(region).marks, DEPTH);
        /* Inner ones first in some rounds; several at once in others. */
        for (size_t i = DEPTH; i-- > 0;) {
            if (round % 2 == 1 && i % 5 != 0)
                continue;
            slate_region_rewind(region, marks[i]);
            struct slate_region_stats now = stats_of(region);
            require_equal(now.asked, at[i].asked);
            require_equal(now.carved, at[i].carved);
            require_equal(now.kept, at[i].kept);
            require_equal(now.chunks, at[i].chunks);
            require_equal(now.own, at[i].own);
            require_equal(now.marks, at[i].marks);
            for (size_t j = 0; j < i; j++)
                require(holds(blocks[j], size_of[j], size_of[j], j));
        }
        require_equal(stats_of(region).kept, 0);
    }
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* A block of its own that is older than the mark, moved since, must not confuse the rewind. */
CHILD_TEST(resized_since_the_mark)
{
    struct slate_region *region = make();
    char *oldest = slate_region_alloc(region, 200 * KIB);
    fill(oldest, 200 * KIB, 4);
    char *block = slate_region_alloc(region, 100 * KIB);
    struct slate_region_mark mark = slate_region_mark(region);
    block = slate_region_realloc(region, block, 100 * KIB, 9 * MIB);
    require(block != NULL);
    memset(block, 1, 9 * MIB);
    require(slate_region_alloc(region, 300 * KIB) != NULL);
    slate_region_rewind(region, mark);
    require(holds(oldest, 200 * KIB, 200 * KIB, 4));
    require_equal(stats_of(region).own, 2);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

/* ---- reset */

CHILD_TEST(reset_keeps_so_much)
{
    static const size_t keeps[] = {0, 1, 4096, 10000, 100 * KIB, MIB, 3 * MIB, SIZE_MAX};
    struct slate_region *region = make();
    for (unsigned i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        for (unsigned j = 0; j < 30000; j++) {
            char *block = slate_region_alloc(region, 100);
            memset(block, (int)j, 100);
        }
        char *own = slate_region_alloc(region, 2 * MIB);
        own[0] = 1;
        struct slate_region_mark mark = slate_region_mark(region);
        (void)mark;
        size_t most = stats_of(region).kept;
        slate_region_reset(region, keeps[i]);
        struct slate_region_stats stats = stats_of(region);
        require_equal(stats.asked, 0);
        require_equal(stats.carved, 0);
        require_equal(stats.own, 0);
        require_equal(stats.marks, 0);
        require_at_most(stats.kept, keeps[i]);
        if (keeps[i] >= 2 * MIB) /* as good as all of what the chunks were */
            require_at_least(stats.kept, 2 * MIB);
        require_at_most(stats.kept, most);
        require_relation(heap_in_use(), >=, stats.kept);
        require_at_most(heap_in_use(), stats.kept + 4096);
    }
    /* What was kept serves, and nothing new is taken. */
    struct slate_region_stats before = stats_of(region);
    for (unsigned j = 0; j < 20000; j++) {
        char *block = slate_region_alloc(region, 100);
        memset(block, (int)j, 100);
    }
    require_equal(stats_of(region).kept, before.kept);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(ended_memory_is_poisoned)
{
    if (!TRACKED) {
        dprintf(STDOUT_FILENO, "%s: skipped: not built with AddressSanitizer\n", __func__);
        return;
    }
    struct slate_region *region = make();
    char *block = slate_region_alloc(region, 13);
    require(!POISONED(block) && !POISONED(block + 12));
    require(POISONED(block + 13) && POISONED(block + 16) && POISONED(block + 1000));
    block = slate_region_realloc(region, block, 13, 100);
    require(!POISONED(block + 99) && POISONED(block + 104));
    block = slate_region_realloc(region, block, 100, 20);
    require(!POISONED(block + 19) && POISONED(block + 24));
    char *large = slate_region_alloc(region, 100000);
    require(!POISONED(large + 99999) && POISONED(large + 100000));
    struct slate_region_mark mark = slate_region_mark(region);
    char *inner = slate_region_alloc(region, 50), *inner_large = slate_region_alloc(region, 90000);
    char *text = slate_region_printf(region, "%s", "four");
    require(!POISONED(text + 4) && POISONED(text + 5));
    slate_region_rewind(region, mark);
    require(POISONED(inner) && POISONED(inner + 49) && POISONED(inner_large + 80000));
    require(!POISONED(block) && !POISONED(large));
    slate_region_reset(region, SIZE_MAX);
    require(POISONED(block) && POISONED(block + 19) && POISONED(large + 100));
    block = slate_region_alloc(region, 24);
    require(!POISONED(block));
    slate_region_destroy(region);
    require(POISONED(block));
}

/* ---- limit */

CHILD_TEST(limits)
{
    struct slate_region *region = make();
    for (size_t limit = 0; limit < 4 * MIB; limit = limit * 2 + 777) {
        slate_region_limit(region, limit);
        require_equal(stats_of(region).limit, limit);
        size_t asked = 0;
        errno = 0;
        while (slate_region_alloc(region, 100) != NULL)
            asked += 100;
        require_equal(errno, ENOMEM);
        struct slate_region_stats stats = stats_of(region);
        require_at_most(stats.kept, limit);
        require_equal(stats.asked, asked);
        /* Most of what is allowed can be had. */
        if (limit > 2000)
            require_at_least(asked, limit - limit / 4 - 1000);
        /* A large one does not fit either; the region is usable: what ends makes room. */
        require(slate_region_alloc(region, limit + 1) == NULL);
        require_equal(stats_of(region).asked, asked);
        slate_region_reset(region, 0);
        if (limit > 2000)
            require(slate_region_alloc(region, 500) != NULL);
        slate_region_limit(region, SIZE_MAX);
        require(slate_region_alloc(region, 100) != NULL);
        slate_region_reset(region, 0);
    }
    /* Growth of a block of its own; a call that cannot be deferred; texts. */
    char *own = slate_region_alloc(region, 100000);
    slate_region_limit(region, stats_of(region).kept);
    fill(own, 100000, 5);
    errno = 0;
    require(slate_region_realloc(region, own, 100000, 1000000) == NULL);
    require_equal(errno, ENOMEM);
    require(holds(own, 100000, 100000, 5));
    require_equal(slate_region_defer(region, free, NULL), ENOMEM);
    require(slate_region_printf(region, "%d", 1) == NULL);
    require(slate_region_strdup(region, "x") == NULL);
    require_equal(stats_of(region).asked, 100000);
    slate_region_destroy(region);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(out_of_memory)
{
    SKIP_UNDER_TOOLS();
    require_equal(slate_tune("SLATE_POLICY", "shared"), 0);
    struct slate_region *region = make();
    require(slate_region_alloc(region, 100) != NULL);
    limit_growth(RLIMIT_DATA, 8 * MIB);
    size_t count = 0;
    errno = 0;
    while (slate_region_alloc(region, 64 * KIB) != NULL)
        count++;
    require_equal(errno, ENOMEM);
    require_at_least(count, 50);
    require_at_most(count, 1000);
    slate_region_reset(region, 0);
    require(slate_region_alloc(region, 64 * KIB) != NULL);
    slate_region_destroy(region);
}

/* ---- deferred calls */

static unsigned called[64], calls;
static struct slate_region *deferring;

static void note(void *argument) { called[calls++] = *(unsigned *)argument; }

static void use_region(void *argument)
{
    char *text = slate_region_printf(deferring, "%u", *(unsigned *)argument);
    require(text != NULL && atoi(text) == (int)*(unsigned *)argument);
    require(slate_region_alloc(deferring, 5000) != NULL);
    note(argument);
}

static void defer(struct slate_region *region, unsigned number)
{
    unsigned *argument = slate_region_new(region, unsigned);
    *argument = number;
    errno = 5;
    require_equal(slate_region_defer(region, number % 4 == 3 ? use_region : note, argument), 0);
    require_equal(errno, 5);
}

CHILD_TEST(deferred_calls)
{
    struct slate_region *region = deferring = make();
    defer(region, 0);
    defer(region, 1);
    struct slate_region_mark mark = slate_region_mark(region);
    defer(region, 2);
    defer(region, 3);
    require(slate_region_alloc(region, 100000) != NULL);
    struct slate_region_mark inner = slate_region_mark(region);
    defer(region, 4);
    slate_region_rewind(region, inner);
    require_equal(calls, 1);
    require_equal(called[0], 4);
    defer(region, 5);
    slate_region_rewind(region, mark);
    require_equal(calls, 4);
    require(called[1] == 5 && called[2] == 3 && called[3] == 2);
    size_t asked = stats_of(region).asked;
    require_equal(asked, 2 * sizeof(unsigned));
    slate_region_reset(region, 10000);
    require_equal(calls, 6);
    require(called[4] == 1 && called[5] == 0);
    require_equal(stats_of(region).asked, 0);
    defer(region, 7);
    defer(region, 8);
    slate_region_destroy(region);
    require_equal(calls, 8);
    require(called[6] == 8 && called[7] == 7);
    require_equal(heap_in_use(), 0);
}

/* ---- statistics, threads */

CHILD_TEST(stats_in_part)
{
    struct slate_region *region = make();
    require(slate_region_alloc(region, 10) != NULL);
    struct slate_region_stats stats;
    memset(&stats, 0x55, sizeof stats);
    require_equal(slate_region_stats(region, &stats, 0), EINVAL);
    require_equal(stats.asked, UINT64_C(0x5555555555555555));
    require_equal(slate_region_stats(region, &stats, offsetof(struct slate_region_stats, kept)), 0);
    require_equal(stats.asked, 10);
    require_equal(stats.carved, 16);
    require_equal(stats.kept, UINT64_C(0x5555555555555555));
    slate_region_destroy(region);
}

struct hand_over {
    struct slate_region *region;
    char *text;
};

static void *fill_region(void *argument)
{
    struct hand_over *all = argument;
    for (unsigned i = 0; i < 5000; i++) {
        char *block = slate_region_alloc(all->region, 50 + i % 900);
        require(block != NULL);
        memset(block, (int)i, 50 + i % 900);
    }
    all->text = slate_region_strdup(all->region, "of another thread");
    require(slate_region_alloc(all->region, 3 * MIB) != NULL);
    return NULL;
}

static void *end_region(void *argument)
{
    struct hand_over *all = argument;
    require(strcmp(all->text, "of another thread") == 0);
    slate_region_destroy(all->region);
    return NULL;
}

CHILD_TEST(made_here_ended_there)
{
    enum { THREADS = 4 };
    for (unsigned round = 0; round < (slow_here() ? 2u : 10u); round++) {
        pthread_t threads[THREADS];
        struct hand_over all[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            all[i].region = make();
            pthread_create(&threads[i], NULL, fill_region, &all[i]);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            if (i % 2 == 0)
                end_region(&all[i]);
        }
        for (unsigned i = 1; i < THREADS; i += 2)
            pthread_create(&threads[i], NULL, end_region, &all[i]);
        for (unsigned i = 1; i < THREADS; i += 2)
            pthread_join(threads[i], NULL);
    }
    slate_purge();
    require_equal(heap_in_use(), 0);
}

/* The real symbols do what the inlined ones do. */
CHILD_TEST(real_symbols)
{
    void *(*volatile alloc)(struct slate_region *, size_t) = slate_region_alloc;
    void *(*volatile zalloc)(struct slate_region *, size_t) = slate_region_zalloc;
    void *(*volatile aligned)(struct slate_region *, size_t, size_t) = slate_region_aligned;
    struct slate_region *region = make();
    char *one = alloc(region, 24), *two = zalloc(region, 100), *three = aligned(region, 256, 10);
    require(two == one + 24 && all_zero(two, 100));
    require_equal((uintptr_t)three % 256, 0);
    require_equal(stats_of(region).asked, 134);
    slate_region_destroy(region);
}

int main(void)
{
    Suite *suite = suite_create("region");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, an_empty_region);
    tcase_add_test(tests, blocks_of_all_sizes);
    tcase_add_test(tests, constant_sizes);
    tcase_add_test(tests, alignments);
    tcase_add_test(tests, zeroed);
    tcase_add_test(tests, texts);
    tcase_add_test(tests, too_large);
    tcase_add_test(tests, the_newest_block_stays);
    tcase_add_test(tests, a_block_of_its_own_grows);
    tcase_add_test(tests, realloc_at_random);
    tcase_add_test(tests, rewind_within_a_chunk);
    tcase_add_test(tests, nested_marks);
    tcase_add_test(tests, resized_since_the_mark);
    tcase_add_test(tests, reset_keeps_so_much);
    tcase_add_test(tests, ended_memory_is_poisoned);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, out_of_memory);
    tcase_add_test(tests, deferred_calls);
    tcase_add_test(tests, stats_in_part);
    tcase_add_test(tests, made_here_ended_there);
    tcase_add_test(tests, real_symbols);
    return run_suite(suite);
}
