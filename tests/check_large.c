/* tests/check_large.c - large blocks: runs of the pool, mappings of their own, growth in place and
 * by page tables.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "large.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "arena.h"
#include "check_support.h"
#include "os.h"
#include "policy.h"
#include "pool.h"
#include "reserve.h"
#include "tunables.h"

#define LEAST (SLATE_CLASS_MAX + 1) /* bytes of the smallest large block */

static void start(enum slatei_policy policy)
{
    slatei_settings.policy = policy;
    slatei_settings.slice_bytes = 16 * MIB; /* a pool of a gibibyte where there are slices */
    slatei_settings.arenas = 4;
    void *first = slate_alloc(1);
    require(first != NULL);
    slate_free(first);
}

static size_t own_bytes(void)
{
    size_t bytes, blocks, resident;
    slatei_large_count(&bytes, &blocks, &resident);
    require_at_most(resident, bytes);
    require((bytes == 0) == (blocks == 0));
    return bytes;
}

static size_t own_blocks(void)
{
    size_t bytes, blocks, resident;
    slatei_large_count(&bytes, &blocks, &resident);
    require_at_most(resident, bytes);
    return blocks;
}

/* Takes all of the pool, without touching it, so that what follows is mapped. */
static void fill_pool(void)
{
    require_at_most(slatei_reserve.pool_span, 2 * GIB);
    size_t size = slatei_reserve.pool_span / 2;
    for (; size >= SLATEI_GRANULE; size /= 2)
        while (slatei_pool_take(size >> SLATE_GRANULE_SHIFT_, 1, SLATEI_MAP_LARGE, NULL) != 0)
            continue;
    require_equal(slatei_pool_take(1, 1, SLATEI_MAP_LARGE, NULL), 0);
}

/* ---- a kernel that refuses to move pages: what Linux before 6.17 does with several mappings */

static bool moves_fail;
static unsigned moves_refused;

void *mremap(void *from, size_t old_size, size_t size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    if (moves_fail && to != NULL) {
        munmap(to, size);
        moves_refused++;
        errno = EFAULT;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mremap, from, old_size, size, flags, to); // NOLINT
}

/* ---- one block */

static void check_block(char *block, size_t size, size_t alignment)
{
    require(block != NULL);
    require_equal((uintptr_t)block % alignment, 0);
    size_t usable = slatei_large_usable(block);
    require_at_least(usable, size);
    require_equal(usable % SLATEI_GRANULE, 0);
    require_equal(slate_usable_size(block), usable);
    /* The ends can be written to. */
    block[0] = 1;
    block[size - 1] = 1;
    block[usable - 1] = 1;
}

static const size_t sizes[] = {LEAST,   20 * KIB,    64 * KIB,      64 * KIB + 1,
                               MIB - 1, 2 * MIB,     3 * MIB,       8 * MIB - 4096,
                               8 * MIB, 8 * MIB + 1, 33 * MIB + 77, 100 * MIB};
#define SIZES (sizeof sizes / sizeof *sizes)

static void each_size(bool own)
{
    for (size_t i = 0; i < SIZES; i++)
        for (size_t alignment = 1; alignment <= GIB; alignment *= 8) {
            bool zero = false;
            char *block = slatei_large_alloc(sizes[i], alignment, &zero);
            check_block(block, sizes[i], alignment > 4096 ? alignment : 4096);
            if (own)
                require(zero);
            require_at_most(slatei_large_usable(block), sizes[i] + SLATEI_GRANULE);
            require_equal(own_blocks(), own);
            require_equal(own_bytes(), own ? slatei_large_usable(block) : 0);
            require(slatei_in_reserve(block) != own);
            require(slatei_large_free(block));
        }
    require_equal(own_bytes(), 0);
}

CHILD_TEST(runs)
{
    slatei_settings.policy = SLATEI_SHARED;
    require(slate_alloc(1) != NULL);
    SKIP_IF(slatei_reserve.pool_span < 8 * GIB, "the address space is too small here");
    each_size(false);
}

CHILD_TEST(mappings)
{
    start(SLATEI_SWITCH);
    SKIP_IF(slatei_reserve.pool_span > 2 * GIB, "the pool is too large to fill");
    fill_pool();
    each_size(true);
}

/* A block larger than the whole pool. */
CHILD_TEST(larger_than_the_pool)
{
    start(SLATEI_SWITCH);
    size_t size = slatei_reserve.pool_span + 5 * MIB + 3;
    char *block = slate_alloc(size);
    check_block(block, size, 4096);
    require(!slatei_in_reserve(block));
    require_equal(own_blocks(), 1);
    char *small = slate_alloc(100000); /* the pool is untouched by it */
    require(slatei_in_reserve(small));
    slate_free(block);
    require_equal(own_blocks(), 0);
    slate_free(small);
}

CHILD_TEST(zero_is_zero)
{
    start(SLATEI_SHARED);
    struct random random = {seed_of_run()};
    enum { SLOTS = 40 };
    char *slot[SLOTS] = {NULL};
    unsigned zeroes = 0;
    for (unsigned i = 0; i < (slow_here() ? 300u : 3000u); i++) {
        size_t k = below(&random, SLOTS), size = LEAST + skewed(&random, 18);
        if (slot[k] != NULL)
            require(slatei_large_free(slot[k]));
        bool zero = false;
        require((slot[k] = slatei_large_alloc(size, 1, &zero)) != NULL);
        zeroes += zero;
        if (zero)
            require(all_zero(slot[k], slatei_large_usable(slot[k])));
        memset(slot[k], 0x5a, slatei_large_usable(slot[k]));
        if (below(&random, 50) == 0)
            slate_purge();
    }
    require_at_least(zeroes, 1);
}

/* What is no large block is nobody's. */
CHILD_TEST(of_nobody)
{
    start(SLATEI_SWITCH);
    int on_stack;
    char *small = slate_alloc(100), *large = slate_alloc(100000);
    require(small != NULL && large != NULL);
    void *const wrong[] = {&on_stack,           small, large + 4096, large + 1 * MIB,
                           slatei_reserve.base, NULL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        require_equal(slatei_large_usable(wrong[i]), 0);
        require(!slatei_large_free(wrong[i]));
    }
    require_at_least(slatei_large_usable(large), 100000);
    require(slatei_large_free(large));
    slate_free(small);
}

CHILD_TEST(too_large)
{
    start(SLATEI_SWITCH);
    static const size_t wrong[] = {PTRDIFF_MAX - 4096, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1,
                                   SIZE_MAX - 4096,    SIZE_MAX,    SIZE_MAX / 4};
    void *block = slate_alloc(100000);
    require(block != NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        require(slatei_large_alloc(wrong[i], 4096, NULL) == NULL);
        require(slatei_large_alloc(wrong[i], GIB, NULL) == NULL);
        require(!slatei_large_resize(block, wrong[i]));
        require(slatei_large_move(block, wrong[i]) == NULL);
    }
    check_block(block, 100000, 4096);
}

/* ---- resize in place */

CHILD_TEST(resize_in_place)
{
    start(SLATEI_SHARED);
    char *a = slatei_large_alloc(MIB, 1, NULL), *b = slatei_large_alloc(MIB, 1, NULL),
         *c = slatei_large_alloc(MIB, 1, NULL);
    require(a != NULL && a + MIB == b && b + MIB == c);
    fill(a, MIB, 1);
    fill(b, MIB, 2);
    fill(c, MIB, 3);
    require(slatei_large_resize(c, 3 * MIB)); /* at the top */
    require_equal(slatei_large_usable(c), 3 * MIB);
    memset(c + MIB, 9, 2 * MIB);
    require(!slatei_large_resize(a, MIB + 1)); /* b is in the way */
    require_equal(slatei_large_usable(a), MIB);
    require(slatei_large_free(b));
    require(slatei_large_resize(a, MIB + 100)); /* b's place is free */
    require_at_least(slatei_large_usable(a), MIB + 100);
    require(slatei_large_resize(a, 2 * MIB));
    require(!slatei_large_resize(a, 2 * MIB + 1));
    require(holds(a, MIB, MIB, 1));
    memset(a + MIB, 9, MIB);
    require(holds(c, MIB, MIB, 3));
    require(slatei_large_resize(a, 64 * KIB)); /* and shrinks */
    require_equal(slatei_large_usable(a), 64 * KIB);
    char *d = slatei_large_alloc(MIB, 1, NULL); /* what it gave up can be used */
    require(d > a && d < c);
    require(holds(a, MIB, 64 * KIB, 1));
    require(slatei_large_free(a));
    require(slatei_large_free(c));
    require(slatei_large_free(d));
}

/* A mapping's room is used, and not kept when it is far too large. */
CHILD_TEST(resize_a_mapping)
{
    start(SLATEI_SWITCH);
    SKIP_IF(slatei_reserve.pool_span > 2 * GIB, "the pool is too large to fill");
    fill_pool();
    char *block = slatei_large_alloc(10 * MIB, 1, NULL);
    require(block != NULL);
    require(slatei_large_resize(block, 10 * MIB));
    require(slatei_large_resize(block, 9 * MIB));
    require(!slatei_large_resize(block, 10 * MIB + 1));
    require(!slatei_large_resize(block, MIB));
    fill(block, 10 * MIB, 4);
    char *grown = slate_realloc(block, 50 * MIB);
    require(grown != NULL);
    require(holds(grown, 10 * MIB, 10 * MIB, 4));
    require_equal(own_blocks(), 1);
    char *shrunk = slate_realloc(grown, MIB);
    require(shrunk != NULL);
    require(holds(shrunk, 10 * MIB, MIB, 4));
    require_at_most(slate_usable_size(shrunk), 2 * MIB);
    slate_free(shrunk);
    require_equal(own_blocks(), 0);
}

/* ---- the table of mappings */

CHILD_TEST(many_mappings)
{
    start(SLATEI_SWITCH);
    SKIP_IF(slatei_reserve.pool_span > 2 * GIB, "the pool is too large to fill");
    fill_pool();
    struct random random = {seed_of_run()};
    enum { SLOTS = 3000 };
    static char *slot[SLOTS];
    static size_t size[SLOTS];
    size_t bytes = 0, blocks = 0;
    for (unsigned i = 0; i < (slow_here() ? 6000u : 30000u); i++) {
        /* Filling up and running empty in turns, so that the table grows and chains break. */
        size_t k = below(&random, i / 6000 % 2 == 0 ? SLOTS : SLOTS / 20);
        if (slot[k] != NULL) {
            size_t usable = slate_usable_size(slot[k]);
            require_at_least(usable, size[k]);
            require_equal(*(size_t *)(void *)slot[k], k);
            require_equal(slot[k][size[k] - 1], 'e');
            bytes -= usable;
            blocks--;
            if (below(&random, 4) == 0) {
                size[k] = LEAST + skewed(&random, 18);
                require((slot[k] = slate_realloc(slot[k], size[k])) != NULL);
                require_equal(*(size_t *)(void *)slot[k], k);
            } else {
                require(slatei_large_free(slot[k]));
                require_equal(slate_usable_size(slot[k]), 0);
                slot[k] = NULL;
            }
        } else {
            size[k] = LEAST + skewed(&random, 18);
            require((slot[k] = slate_alloc(size[k])) != NULL);
            require(!slatei_in_reserve(slot[k]));
            *(size_t *)(void *)slot[k] = k;
        }
        if (slot[k] != NULL) {
            slot[k][size[k] - 1] = 'e';
            bytes += slate_usable_size(slot[k]);
            blocks++;
        }
        if (i % 100 == 0) {
            require_equal(own_bytes(), bytes);
            require_equal(own_blocks(), blocks);
        }
    }
    for (size_t k = 0; k < SLOTS; k++)
        slate_free(slot[k]);
    require_equal(own_blocks(), 0);
    require_equal(own_bytes(), 0);
}

static void *map_and_unmap(void *number)
{
    struct random random = {(uintptr_t)number};
    enum { SLOTS = 50 };
    char *slot[SLOTS] = {NULL};
    for (unsigned i = 0; i < (slow_here() ? 500u : 3000u); i++) {
        size_t k = below(&random, SLOTS);
        if (slot[k] != NULL)
            require(holds(slot[k], 64, 64, (uintptr_t)number * SLOTS + k));
        slate_free(slot[k]);
        require((slot[k] = slate_alloc(LEAST + skewed(&random, 17))) != NULL);
        fill(slot[k], 64, (uintptr_t)number * SLOTS + k);
    }
    for (unsigned k = 0; k < SLOTS; k++)
        slate_free(slot[k]);
    return number;
}

static void by_threads(bool own)
{
    start(own ? SLATEI_SWITCH : SLATEI_SHARED);
    SKIP_IF(own && slatei_reserve.pool_span > 2 * GIB, "the pool is too large to fill");
    if (own)
        fill_pool();
    uint64_t seed = seed_of_run();
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        require_equal(pthread_create(&thread[i], NULL, map_and_unmap, (void *)(seed * 4 + i)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    require_equal(own_blocks(), 0);
}

CHILD_TEST(mappings_of_threads) { by_threads(true); }

CHILD_TEST(runs_of_threads) { by_threads(false); }

/* ---- growth */

/* A number in each 512 bytes of a block that lie wholly in [from, to). */
static void mark(char *block, size_t from, size_t to, uint64_t number)
{
    for (size_t at = (from + 511) & ~(size_t)511; at + 512 <= to; at += 512)
        *(uint64_t *)(void *)(block + at) = number + at;
}

static bool marked(const char *block, size_t size, uint64_t number)
{
    for (size_t at = 0; at + 512 <= size; at += 512)
        if (*(const uint64_t *)(const void *)(block + at) != number + at)
            return false;
    return true;
}

/* Grows a block with something behind it, again and again. */
static void move_often(enum slatei_policy policy, size_t switch_bytes, bool own)
{
    slatei_settings.switch_bytes = switch_bytes;
    start(policy);
    SKIP_IF(own && slatei_reserve.pool_span > 2 * GIB, "the pool is too large to fill");
    if (own)
        fill_pool();
    struct random random = {seed_of_run()};
    size_t most = slow_here() ? 24 * MIB : 80 * MIB;
    for (unsigned round = 0; round < 3; round++) {
        size_t size = 6 * MIB + below(&random, MIB);
        char *block = slate_alloc(size), *wall = NULL;
        require(block != NULL);
        mark(block, 0, size, round);
        for (size_t old = size; size < most; old = size) {
            slate_free(wall);
            require((wall = slate_alloc(20000 + below(&random, 100000))) != NULL);
            memset(wall, 1, 20000);
            size += 1 + below(&random, 6 * MIB);
            require((block = slate_realloc(block, size)) != NULL);
            require(marked(block, old, round));
            mark(block, old & ~(size_t)511, size, round);
            require_equal(wall[0], 1);
            require_equal(wall[19999], 1);
        }
        /* The memory that was left behind is good for others. */
        char *other = slate_zalloc(10 * MIB);
        require(other != NULL);
        require(all_zero(other, 10 * MIB));
        memset(other, 7, 10 * MIB);
        require(marked(block, size, round));
        slate_free(other);
        slate_free(wall);
        slate_free(block);
    }
}

CHILD_TEST(move_in_switch) { move_often(SLATEI_SWITCH, 8 * MIB, false); }

CHILD_TEST(move_in_shared) { move_often(SLATEI_SHARED, 8 * MIB, false); }

CHILD_TEST(move_in_never) { move_often(SLATEI_NEVER, 8 * MIB, false); }

CHILD_TEST(move_across_the_switch) { move_often(SLATEI_SHARED, 48 * MIB, false); }

CHILD_TEST(move_mappings) { move_often(SLATEI_SWITCH, 8 * MIB, true); }

/* Moved pages keep their advice: after all that, it still is where the policy wants it. */
static void check_advice(enum slatei_policy policy, size_t switch_bytes)
{
    SKIP_UNDER_TOOLS();
    SKIP_IF(no_huge_pages() != NULL, no_huge_pages());
    move_often(policy, switch_bytes, false);
    static struct mapping_seen seen[8192];
    size_t count = read_mappings(seen, sizeof seen / sizeof *seen);
    require_at_most(count, sizeof seen / sizeof *seen);
    struct slatei_pool_counts pool;
    slatei_pool_count(&pool);
    size_t small_end = slatei_policy_small_end();
    uintptr_t base = (uintptr_t)slatei_reserve.base;
    for (size_t i = 0; i < count; i++) {
        if (seen[i].end <= base || seen[i].start >= base + pool.committed)
            continue;
        size_t from = seen[i].start < base ? 0 : seen[i].start - base;
        require_equal(seen[i].huge, pool.committed > small_end && from >= small_end);
        require_equal(seen[i].small, !seen[i].huge);
    }
}

CHILD_TEST(advice_in_shared) { check_advice(SLATEI_SHARED, 8 * MIB); }

CHILD_TEST(advice_across_the_switch) { check_advice(SLATEI_SHARED, 48 * MIB); }

CHILD_TEST(advice_in_never) { check_advice(SLATEI_NEVER, 8 * MIB); }

/* A refused move copies, and leaves nothing unusable behind. */
static void check_refused_moves(enum slatei_policy policy)
{
    SKIP_UNDER_TOOLS();
    start(policy);
    moves_fail = true;
    size_t size = 16 * MIB;
    unsigned char *block = slate_alloc(size);
    require(block != NULL);
    fill(block, size, 1);
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned char *wall = NULL; wall < block;)
            require((wall = slate_alloc(300000)) != NULL);
        errno = 77;
        require((block = slate_realloc(block, size + 8 * MIB)) != NULL);
        require_equal(errno, 77);
        require(holds(block, size, size, 1));
        size += 8 * MIB;
        fill(block, size, 1);
    }
    require_at_least(moves_refused, 1);
    static struct mapping_seen seen[8192];
    size_t count = read_mappings(seen, sizeof seen / sizeof *seen);
    size_t offset = (size_t)((char *)block - slatei_reserve.base);
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)block - seen[i].start < seen[i].end - seen[i].start)
            require_equal(seen[i].huge, offset >= slatei_policy_small_end());
    slate_free(block);
}

CHILD_TEST(refused_moves_in_shared) { check_refused_moves(SLATEI_SHARED); }

CHILD_TEST(refused_moves_in_never) { check_refused_moves(SLATEI_NEVER); }

#define PAYLOAD (64 * MIB)

/* A byte at a time, a thousand times: the payload stays where it is or its page tables move, so it
 * is never in memory twice and nothing faults again.  What it grows into may be on a huge page. */
static void grow_by_bytes(enum slatei_policy policy, bool walled, bool from_prefix)
{
    SKIP_UNDER_TOOLS();
    start(policy);
    size_t size = PAYLOAD, page = slatei_os_page_size();
    if (!from_prefix)
        require(slate_alloc(slatei_settings.switch_bytes) != NULL);
    unsigned char *block = slate_alloc(size), *wall = NULL;
    require(block != NULL);
    fill(block, size, 1);
    size_t before = status_bytes("RssAnon"), faults = minor_faults(), peak = 0;
    unsigned moves = 0, walls = 0;
    for (unsigned i = 0; i < 1000; i++) {
        /* In the way now and then; gaps before the block are filled first. */
        for (wall = NULL; walled && i % 50 == 0 && wall < block; walls++)
            require((wall = slate_alloc(30000)) != NULL);
        unsigned char *before_growth = block;
        require((block = slate_realloc(block, ++size)) != NULL);
        moves += block != before_growth;
        block[size - 1] = (unsigned char)i;
        if (i % 10 == 0) {
            size_t now = status_bytes("RssAnon");
            peak = now > peak ? now : peak;
        }
    }
    /* And what the walls and the tables of new ground take. */
    size_t room = PAYLOAD / 100 + 256 * KIB + walls * 32 * KIB;
    if (policy != SLATEI_NEVER)
        room += slatei_os_huge_page_size();
    /* What lies on small pages may be copied to huge ones. */
    if (policy != SLATEI_NEVER && walled && from_prefix)
        room += slatei_settings.switch_bytes;
    require_at_most(peak, before + room);
    require_at_most(status_bytes("VmHWM"), status_bytes("VmRSS") + room);
    /* A copy would fault for every page, small or huge. */
    require_at_most(minor_faults() - faults, PAYLOAD / page / 16);
    require(holds(block, PAYLOAD, PAYLOAD, 1));
    for (unsigned i = 0; i < 1000; i++)
        require_equal(block[PAYLOAD + i], (unsigned char)i);
    require(walled ? moves > 0 : moves == 0);
}

/* Blocks that are mappings whatever their size: growth, cuts, and all they are counted as. */
CHILD_TEST(own_blocks_change_their_size)
{
    start(SLATEI_SWITCH);
    size_t copied = 1, size = MIB + 5000;
    char *block = slatei_large_alloc_own(size);
    require(block != NULL && !slatei_in_reserve(block));
    require_equal((uintptr_t)block % (2 * MIB), 0);
    require_equal(slatei_large_usable(block), slatei_round_up(size, 4096));
    fill(block, size, 3);
    char *neighbours[20];
    for (size_t i = 0; i < 20; i++) {
        neighbours[i] = slatei_large_alloc_own(MIB);
        size_t more = size + (i + 1) * 3 * MIB;
        block = slatei_large_resize_own(block, more, &copied);
        require(block != NULL && holds(block, size, size, 3));
        require_equal(copied, 0);
        require_equal(slatei_large_usable(block), slatei_round_up(more, 4096));
        block[more - 1] = 1;
    }
    require_equal(own_blocks(), 21);
    block = slatei_large_resize_own(block, size, &copied);
    require_equal(own_bytes(), slatei_round_up(size, 4096) + 20 * MIB);
    require(slatei_large_cut_own(block, 8192));
    block += 8192;
    require_equal(slatei_large_usable(block), slatei_round_up(size, 4096) - 8192);
    require_equal(slatei_large_usable(block - 8192), 0);
    require(slatei_large_resize_own(block, SIZE_MAX, &copied) == NULL);
    require(slatei_large_free(block));
    for (size_t i = 0; i < 20; i++)
        require(slatei_large_free(neighbours[i]));
    require_equal(own_bytes(), 0);
    require_equal(slatei_large_spare_own(), MIB);
    char *again = slatei_large_alloc_own(MIB / 2);
    require_equal(slatei_large_usable(again), MIB);
    require_equal(slatei_large_spare_own(), 0);
    slate_free(again);
    require_equal(slatei_large_purge(), 0); /* never touched */
    require_equal(slatei_large_spare_own(), 0);
}

/* Addresses that a mapping leaves as it moves or is cut may be another thread's the next moment. */
static void *resize_and_cut(void *number)
{
    struct random random = {(uintptr_t)number};
    enum { SLOTS = 6 };
    struct {
        char *block;
        size_t size;
    } slot[SLOTS] = {{NULL, 0}};
    size_t copied;
    for (unsigned i = 0; i < (slow_here() ? 500u : 10000u); i++) {
        size_t k = below(&random, SLOTS), size = (below(&random, 1000) + 10) * 4096;
        size_t cut = below(&random, 4) * 4096;
        if (slot[k].block != NULL)
            require_equal(slatei_large_usable(slot[k].block), slot[k].size);
        if (slot[k].block == NULL || below(&random, 5) == 0) {
            if (slot[k].block != NULL)
                require(slatei_large_free(slot[k].block));
            require((slot[k].block = slatei_large_alloc_own(size)) != NULL);
            size = slatei_large_usable(slot[k].block); /* one that was kept is larger */
        } else if (cut != 0 && cut < slot[k].size) {
            require(slatei_large_cut_own(slot[k].block, cut));
            slot[k].block += cut;
            size = slot[k].size - cut;
        } else {
            slot[k].block = slatei_large_resize_own(slot[k].block, size, &copied);
            require(slot[k].block != NULL);
        }
        slot[k].size = size;
        slot[k].block[0] = 1;
        /* Memcheck holds the end of a mapping that grows as it moves for unmapped. */
        if (!RUNNING_ON_VALGRIND)
            slot[k].block[size - 1] = 1;
    }
    for (unsigned k = 0; k < SLOTS; k++)
        if (slot[k].block != NULL)
            require(slatei_large_free(slot[k].block));
    return number;
}

CHILD_TEST(own_blocks_of_threads)
{
    start(SLATEI_SWITCH);
    uint64_t seed = seed_of_run();
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        require_equal(pthread_create(&thread[i], NULL, resize_and_cut, (void *)(seed * 4 + i + 1)),
                      0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    require_equal(own_blocks(), 0);
    require_equal(own_bytes(), 0);
}

CHILD_TEST(grow_in_place) { grow_by_bytes(SLATEI_SHARED, false, true); }

CHILD_TEST(grow_in_place_switch) { grow_by_bytes(SLATEI_SWITCH, false, true); }

CHILD_TEST(grow_in_place_never) { grow_by_bytes(SLATEI_NEVER, false, true); }

CHILD_TEST(grow_behind_a_wall) { grow_by_bytes(SLATEI_SHARED, true, false); }

CHILD_TEST(grow_behind_a_wall_switch) { grow_by_bytes(SLATEI_SWITCH, true, false); }

CHILD_TEST(grow_behind_a_wall_never) { grow_by_bytes(SLATEI_NEVER, true, false); }

CHILD_TEST(grow_out_of_the_prefix) { grow_by_bytes(SLATEI_SHARED, true, true); }

int main(void)
{
    Suite *suite = suite_create("large");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, runs);
    tcase_add_test(tests, mappings);
    tcase_add_test(tests, larger_than_the_pool);
    tcase_add_test(tests, zero_is_zero);
    tcase_add_test(tests, of_nobody);
    tcase_add_test(tests, too_large);
    tcase_add_test(tests, resize_in_place);
    tcase_add_test(tests, resize_a_mapping);
    tcase_add_test(tests, many_mappings);
    tcase_add_test(tests, mappings_of_threads);
    tcase_add_test(tests, runs_of_threads);
    tcase_add_test(tests, move_in_switch);
    tcase_add_test(tests, move_in_shared);
    tcase_add_test(tests, move_in_never);
    tcase_add_test(tests, move_across_the_switch);
    tcase_add_test(tests, move_mappings);
    tcase_add_test(tests, advice_in_shared);
    tcase_add_test(tests, advice_across_the_switch);
    tcase_add_test(tests, advice_in_never);
    tcase_add_test(tests, refused_moves_in_shared);
    tcase_add_test(tests, refused_moves_in_never);
    tcase_add_test(tests, own_blocks_change_their_size);
    tcase_add_test(tests, own_blocks_of_threads);
    tcase_add_test(tests, grow_in_place);
    tcase_add_test(tests, grow_in_place_switch);
    tcase_add_test(tests, grow_in_place_never);
    tcase_add_test(tests, grow_behind_a_wall);
    tcase_add_test(tests, grow_behind_a_wall_switch);
    tcase_add_test(tests, grow_behind_a_wall_never);
    tcase_add_test(tests, grow_out_of_the_prefix);
    return run_suite(suite);
}
