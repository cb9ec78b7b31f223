/* phases.c - a program goes through phases: memory of one phase serves the next, slate_purge gives
 * it back for good, and large buffers that grow fault no page twice.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <sys/resource.h>
#include <time.h>

#define PHASE (48 * MIB) /* usable bytes that a phase fills */

static size_t base; /* memory of the process before anything was filled */

static size_t grown(void)
{
    size_t now = test_resident();
    return now > base ? now - base : 0;
}

static unsigned long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (unsigned long)usage.ru_minflt;
}

/* ---- filling */

struct filled {
    char *next;
    size_t size;
};

/* Blocks of `size` bytes, 0 for all sizes, until PHASE bytes are in use; a chain. */
static struct filled *fill(size_t size, uint64_t seed)
{
    struct filled *first = NULL;
    for (size_t used = 0; used < PHASE;) {
        size_t asked = size != 0 ? size : random_size(&seed) % 65536 + sizeof *first;
        struct filled *block = slate_alloc(asked);
        REQUIRE(block != NULL, "an allocation of %zu bytes failed", asked);
        memset(block, 0x5a, asked);
        *block = (struct filled){(char *)first, asked};
        first = block;
        used += slate_usable_size(block);
    }
    return first;
}

/* Ends every block but one in `keep`; 0 keeps none.  Returns the chain of the kept ones. */
static struct filled *empty(struct filled *block, size_t keep)
{
    struct filled *kept = NULL;
    for (size_t i = 0; block != NULL; i++) {
        struct filled *next = (struct filled *)(void *)block->next;
        if (keep != 0 && i % keep == keep - 1) {
            block->next = (char *)kept;
            kept = block;
        } else {
            slate_free(block);
        }
        block = next;
    }
    return kept;
}

/* The most memory that phases of these sizes take, one after the other. */
static size_t most_of_phases(const size_t *sizes, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        struct filled *blocks = fill(sizes[i], i);
        size_t memory = grown();
        printf("phase of %zu-byte blocks (0: mixed): %zu KiB for %zu KiB\n", sizes[i], memory >> 10,
               PHASE >> 10);
        most = memory > most ? memory : most;
        empty(blocks, 0);
    }
    return most;
}

static void test_phases(void)
{
    static const size_t small[] = {48, 200, 1000, 24, 6000, 0, 16384, 512, 16, 96, 2500};
    static const size_t large[] = {100000, 2 * MIB, 30000, 64};
    size_t one = most_of_phases(small, 1);
    size_t most = most_of_phases(small + 1, sizeof small / sizeof *small - 1);
    REQUIRE(most <= one + one / 10, "a phase took %zu KiB of memory, later ones up to %zu KiB",
            one >> 10, most >> 10);
    /* What the short lists of all classes keep must not lie between the runs for large blocks. */
    most = most_of_phases(large, sizeof large / sizeof *large);
    REQUIRE(most <= one + one / 10, "a phase took %zu KiB of memory, one of large blocks %zu KiB",
            one >> 10, most >> 10);
}

/* ---- giving back */

/* It must not fill the holes again. */
static void wait_for_khugepaged(void) { nanosleep(&(struct timespec){.tv_sec = 3}, NULL); }

static void test_purge(bool shared)
{
    size_t before = grown();
    size_t given = slate_purge();
    size_t after = grown();
    /* The units of class slices stay, and with them a hundredth for the tables. */
    size_t least = MIB + (shared ? 0 : before / 64);
    printf("slate_purge of an empty heap: %zu KiB before, says %zu KiB, %zu KiB after\n",
           before >> 10, given >> 10, after >> 10);
    REQUIRE(after <= least, "after slate_purge an empty heap takes %zu KiB", after >> 10);
    REQUIRE(given + MIB >= before - after && given <= before - after + MIB,
            "slate_purge says it gave back %zu KiB, but it was %zu KiB", given >> 10,
            (before - after) >> 10);
    size_t again = slate_purge();
    REQUIRE(again == 0, "a second slate_purge says it gave back %zu KiB", again >> 10);
    wait_for_khugepaged();
    size_t later = grown();
    REQUIRE(later <= least, "3 s after slate_purge an empty heap takes %zu KiB", later >> 10);
}

/* A few blocks stay everywhere: every page without one goes. */
static void test_purge_between(void)
{
    enum { BLOCK = 400 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 0;
    struct filled *block = fill(BLOCK, 1), *kept = NULL;
    for (struct filled *next; block != NULL; block = next) {
        next = (struct filled *)(void *)block->next;
        if ((uintptr_t)block / BLOCK % 500 == 0) {
            uintptr_t first = (uintptr_t)block / page, last = ((uintptr_t)block + BLOCK - 1) / page;
            pages += last - first + 1;
            block->next = (char *)kept;
            kept = block;
        } else {
            slate_free(block);
        }
    }
    for (unsigned look = 0; look < 2; look++) {
        if (look == 0)
            slate_purge();
        else
            wait_for_khugepaged();
        size_t memory = grown();
        printf("blocks kept in %zu pages, after slate_purge%s: %zu KiB\n", pages,
               look == 0 ? "" : " and 3 s", memory >> 10);
        REQUIRE(memory <= pages * page + MIB,
                "blocks live in %zu pages, but%s after slate_purge the heap takes %zu KiB", pages,
                look == 0 ? "" : " 3 s", memory >> 10);
    }
    for (struct filled *checked = kept; checked != NULL;
         checked = (struct filled *)(void *)checked->next)
        REQUIRE(checked->size == BLOCK && ((char *)checked)[BLOCK - 1] == 0x5a,
                "slate_purge damaged a block");
    empty(kept, 0);
}

/* Blocks of some pages each come and go, all on small pages, with purges between: in the end no
 * page may be forgotten. */
static void test_purge_accounts(void)
{
    enum { BLOCKS = 64 };
    static char *blocks[BLOCKS];
    uint64_t state = 3;
    size_t live = 0, rest = 0;
    slate_purge(); /* so that all of it fits below the switch point */
    for (unsigned i = 0; i < 6000; i++) {
        char **block = &blocks[random_below(&state, BLOCKS)];
        if (*block != NULL) {
            live -= slate_usable_size(*block);
            slate_free(*block);
            *block = NULL;
        } else {
            size_t size = random_doubling(&state, 15, 17);
            *block = slate_alloc(size);
            REQUIRE(*block != NULL, "an allocation of %zu bytes failed", size);
            live += slate_usable_size(*block);
            memset(*block, 0x5a, size);
        }
        if (i % 7 != 0)
            continue;
        slate_purge();
        struct slate_stats stats;
        slate_stats(&stats, sizeof stats);
        size_t memory = grown(), around = memory - live - stats.tables;
        if (i == 0)
            rest = around;
        REQUIRE(around <= rest + (64 << 10),
                "operation %u: after slate_purge %zu KiB of memory for %zu KiB of live blocks, "
                "%zu KiB of tables and %zu KiB of the process's own",
                i, memory >> 10, live >> 10, stats.tables >> 10, rest >> 10);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        slate_free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* ---- buffers that grow */

/* Faults while a buffer of 9 MB grows 600 times; with `blocked`, something lies behind it each
 * time. */
static void test_growing(bool blocked)
{
    slate_purge();
    size_t size = 9000000;
    unsigned long before = faults();
    char *blocker = NULL, *buffer = slate_alloc(size);
    REQUIRE(buffer != NULL, "slate_alloc(%zu) failed", size);
    memset(buffer, 1, size);
    for (unsigned i = 0; i < 600; i++) {
        size_t larger = size + 3000;
        buffer = slate_realloc(buffer, larger);
        REQUIRE(buffer != NULL, "slate_realloc to %zu failed", larger);
        memset(buffer + size, 1, larger - size);
        size = larger;
        if (blocked) {
            slate_free(blocker);
            blocker = slate_alloc(40000);
            REQUIRE(blocker != NULL, "slate_alloc(40000) failed");
            blocker[0] = 1;
        }
    }
    unsigned long count = faults() - before;
    size_t pages = test_stats().committed / (size_t)sysconf(_SC_PAGESIZE);
    printf("600 times growing 9 MB%s: %lu faults, %zu pages\n",
           blocked ? ", something behind it" : "", count, pages);
    REQUIRE(count <= pages + 64, "growing a 9 MB buffer 600 times%s: %lu faults on %zu pages",
            blocked ? " with something behind it" : "", count, pages);
    for (size_t i = 0; i < size; i += 1000)
        REQUIRE(buffer[i] == 1, "byte %zu of the buffer was lost", i);
    slate_free(blocker);
    slate_free(buffer);
}

/* Growth by single bytes touches nothing but new pages. */
static void test_growing_slowly(void)
{
    size_t size = 64 * MIB;
    char *buffer = slate_alloc(size);
    REQUIRE(buffer != NULL, "slate_alloc(%zu) failed", size);
    memset(buffer, 1, size);
    unsigned long before = faults();
    size_t memory = test_resident();
    for (unsigned i = 0; i < 1000; i++) {
        buffer = slate_realloc(buffer, size + 1);
        REQUIRE(buffer != NULL, "slate_realloc to %zu failed", size + 1);
        buffer[size++] = 1;
    }
    unsigned long count = faults() - before;
    size_t more = test_resident() - memory;
    REQUIRE(count <= 64 && more <= 4 * MIB,
            "growing 64 MiB by 1 byte 1,000 times: %lu faults, %zu KiB more memory", count,
            more >> 10);
    slate_free(buffer);
}

static void run(void *context)
{
    const char *policy = context;
    bool shared = strcmp(policy, "shared") == 0;
    slate_free(slate_alloc(1));
    base = test_resident();
    if (shared) {
        test_phases();
        test_purge(shared);
        test_purge_between();
        test_purge_accounts();
    } else {
        /* A class slice may end in a huge page that is hardly carved. */
        static const size_t sizes[] = {48, 512, 16384};
        most_of_phases(sizes, sizeof sizes / sizeof *sizes);
        test_purge(shared);
    }
    test_growing(false);
    test_growing(true);
    test_growing_slowly();
}

int main(void)
{
    skip_where_memory_is_not_ours();
    bool passed = true;
    for (unsigned i = 0; i < TEST_POLICIES; i++) {
        printf("policy %s\n", test_policies[i]);
        passed &= test_with_policy(test_policies[i], run, (void *)(uintptr_t)test_policies[i]);
    }
    return passed ? TEST_PASSED : TEST_FAILED;
}
