/* model.c - random operations against a reference model: contents, zeroes, alignment, overlap,
 * errno, and what slate_stats says, under each policy.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <errno.h>
#include <search.h>
#include <time.h>

enum { SLOTS = 8192, RECENT = 16, WHOLE = 1024, EDGE = 64, SAMPLE = 16 };

/* A live block as the model knows it. */
struct block {
    char *address; /* NULL: the slot is empty */
    size_t asked;
    size_t usable;
    size_t written; /* patterned: asked or usable */
    uint64_t seed;
};

static struct block slots[SLOTS];
static unsigned recent[RECENT]; /* slots filled last */
static unsigned recent_at;
static void *ranges;       /* tree of live blocks; blocks that overlap compare as equal */
static size_t usable_sum;  /* of all live blocks */
static uint64_t generator; /* random numbers */
static unsigned long operation;

/* The real symbols: half of the calls go to them, the others are inlined here. */
static void *(*volatile alloc_symbol)(size_t) = slate_alloc;
static void *(*volatile zalloc_symbol)(size_t) = slate_zalloc;
static void *(*volatile realloc_symbol)(void *, size_t) = slate_realloc;
static void (*volatile free_symbol)(void *) = slate_free;
static void (*volatile free_sized_symbol)(void *, size_t) = slate_free_sized;
static size_t (*volatile usable_symbol)(const void *) = slate_usable_size;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "operation %lu: ", operation);                                         \
            fail(__VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

enum { UNTOUCHED = 12345 };

static void check_errno(const char *what)
{
    CHECK(errno == UNTOUCHED, "%s set errno to %d", what, errno);
}

static bool flip(void) { return next_random(&generator) & 1; }

/* ---- patterns: whole for small blocks; edges, and a sample a page, for large ones */

static void pattern_bytes(uint64_t seed, size_t from, size_t length, char *bytes)
{
    for (size_t i = 0; i < length; i++) {
        uint64_t word = seed + ((from + i) >> 3) * UINT64_C(0x9e3779b97f4a7c15);
        bytes[i] = (char)(word >> ((from + i) & 7) * 8);
    }
}

static void write_part(const struct block *block, size_t from, size_t length)
{
    pattern_bytes(block->seed, from, length, block->address + from);
}

static void check_part(const struct block *block, size_t from, size_t length, size_t limit)
{
    char expected[WHOLE];
    if (from >= limit)
        return;
    if (length > limit - from)
        length = limit - from;
    pattern_bytes(block->seed, from, length, expected);
    CHECK(memcmp(block->address + from, expected, length) == 0,
          "block %p of %zu bytes: its contents changed between bytes %zu and %zu",
          (void *)block->address, block->asked, from, from + length);
}

static void write_pattern(struct block *block, size_t size)
{
    block->written = size;
    block->seed = next_random(&generator);
    if (size <= WHOLE) {
        write_part(block, 0, size);
        return;
    }
    for (size_t page = 4096; page < size - EDGE - SAMPLE; page += 4096)
        write_part(block, page, SAMPLE);
    write_part(block, 0, EDGE);
    write_part(block, size - EDGE, EDGE);
}

/* Checks the first `limit` bytes of what write_pattern wrote. */
static void check_pattern(const struct block *block, size_t limit)
{
    size_t size = block->written;
    if (size <= WHOLE) {
        check_part(block, 0, size, limit);
        return;
    }
    for (size_t page = 4096; page < size - EDGE - SAMPLE; page += 4096)
        check_part(block, page, SAMPLE, limit);
    check_part(block, 0, EDGE, limit);
    check_part(block, size - EDGE, EDGE, limit);
}

static void check_zero(const char *address, size_t size)
{
    size_t step = size <= 256 << 10 ? 1 : 8;
    size_t words = size / 8;
    for (size_t i = 0; i < words; i += step) {
        uint64_t word;
        memcpy(&word, address + i * 8, 8);
        CHECK(word == 0, "slate_zalloc(%zu) at %p: byte %zu or near it is not zero", size,
              (const void *)address, i * 8);
    }
    for (size_t i = words * 8; i < size; i++)
        CHECK(address[i] == 0, "slate_zalloc(%zu) at %p: byte %zu is not zero", size,
              (const void *)address, i);
}

/* ---- the model */

static int compare_ranges(const void *left, const void *right)
{
    const struct block *a = left, *b = right;
    if (a->address + a->usable <= b->address)
        return -1;
    return b->address + b->usable <= a->address;
}

static void add(struct block *block, char *address, size_t asked, size_t alignment)
{
    CHECK(((uintptr_t)address & (alignment - 1)) == 0,
          "block %p of %zu bytes is not aligned to %zu", (void *)address, asked, alignment);
    block->address = address;
    block->asked = asked;
    block->usable = flip() ? slate_usable_size(address) : usable_symbol(address);
    CHECK(block->usable >= asked && block->usable != 0,
          "block %p of %zu bytes: its usable size is %zu", (void *)address, asked, block->usable);
    struct block **found = tsearch(block, &ranges, compare_ranges);
    REQUIRE(found != NULL, "the model has no memory");
    CHECK(*found == block, "block %p of %zu bytes overlaps block %p of %zu bytes", (void *)address,
          block->usable, (void *)(*found)->address, (*found)->usable);
    usable_sum += block->usable;
    write_pattern(block, next_random(&generator) % 4 == 0 ? block->usable : asked);
    recent[recent_at++ % RECENT] = (unsigned)(block - slots);
}

static void drop(struct block *block)
{
    struct block **found = tfind(block, &ranges, compare_ranges);
    CHECK(found != NULL && *found == block, "the model lost a block");
    tdelete(block, &ranges, compare_ranges);
    usable_sum -= block->usable;
}

static void allocate(struct block *block)
{
    size_t size = random_size(&generator), alignment = 16;
    if (random_below(&generator, 4000) == 0)
        size = 8 * MIB + random_below(&generator, 8 * MIB);
    char *address;
    errno = UNTOUCHED;
    switch (random_below(&generator, 8)) {
    case 0:
    case 1:
        address = flip() ? slate_zalloc(size) : zalloc_symbol(size);
        if (address != NULL)
            check_zero(address, size);
        break;
    case 2:
        alignment = (size_t)1 << random_below(&generator, 13);
        if (random_below(&generator, 500) == 0)
            alignment = (size_t)1 << (12 + random_below(&generator, 12));
        address = slate_aligned_alloc(alignment, size);
        break;
    case 3:
        address = flip() ? slate_realloc(NULL, size) : realloc_symbol(NULL, size);
        break;
    default:
        address = flip() ? slate_alloc(size) : alloc_symbol(size);
        break;
    }
    CHECK(address != NULL, "an allocation of %zu bytes, aligned to %zu, failed: %s", size,
          alignment, strerror(errno));
    check_errno("an allocation");
    add(block, address, size, alignment);
}

static void release(struct block *block)
{
    check_pattern(block, block->written);
    drop(block);
    errno = UNTOUCHED;
    if (next_random(&generator) % 3 != 0) {
        if (flip())
            slate_free(block->address);
        else
            free_symbol(block->address);
    } else {
        size_t size = block->asked + random_below(&generator, block->usable - block->asked + 1);
        if (flip())
            slate_free_sized(block->address, size);
        else
            free_sized_symbol(block->address, size);
    }
    check_errno("a free");
    block->address = NULL;
}

static size_t new_size(const struct block *block)
{
    switch (random_below(&generator, 8)) {
    case 0:
        return random_size(&generator);
    case 1:
        return block->asked / 2;
    case 2:
        return block->asked;
    case 3:
        return block->asked + 1 + random_below(&generator, 16);
    default: /* as arrays of properties grow; very large ones slowly, so that some are moved */
        if (block->asked < 2 * MIB)
            return block->asked + block->asked / 2;
        return block->asked > 8 * MIB && block->asked < 24 * MIB
                   ? block->asked + random_below(&generator, MIB)
                   : random_size(&generator);
    }
}

static void resize(struct block *block)
{
    size_t size = new_size(block), old = block->asked;
    check_pattern(block, block->written);
    drop(block);
    errno = UNTOUCHED;
    char *moved =
        flip() ? slate_realloc(block->address, size) : realloc_symbol(block->address, size);
    CHECK(moved != NULL, "slate_realloc from %zu to %zu bytes failed", old, size);
    check_errno("slate_realloc");
    block->address = moved;
    check_pattern(block, old < size ? old : size);
    add(block, moved, size, 16);
}

/* What must be refused, and leave everything as it was. */
static void refuse(const struct block *block)
{
    volatile size_t huge = SIZE_MAX - random_below(&generator, SIZE_MAX / 2 - 4096);
    volatile size_t alignments[] = {0, 3, 48, (size_t)1 << 31, SIZE_MAX};
    errno = 0;
    CHECK(slate_alloc(huge) == NULL && errno == ENOMEM, "slate_alloc(%zu) was not refused", huge);
    errno = 0;
    CHECK(slate_zalloc(huge) == NULL && errno == ENOMEM, "slate_zalloc(%zu) was not refused", huge);
    errno = 0;
    CHECK(slate_aligned_alloc(4096, huge) == NULL && errno == ENOMEM,
          "slate_aligned_alloc(4096, %zu) was not refused", huge);
    size_t alignment = alignments[random_below(&generator, 5)];
    errno = 0;
    CHECK(slate_aligned_alloc(alignment, 100) == NULL && errno == EINVAL,
          "slate_aligned_alloc(%zu, 100) was not refused", alignment);
    errno = 0;
    CHECK(slate_realloc(block->address, huge) == NULL && errno == ENOMEM,
          "slate_realloc to %zu bytes was not refused", huge);
    CHECK(slate_usable_size(block->address) == block->usable,
          "a refused slate_realloc changed the block");
    check_pattern(block, block->written);
}

/* On one thread slate_stats must know exactly what lives. */
static void check_stats(void)
{
    struct slate_stats stats = test_stats();
    CHECK(stats.in_use + stats.own_mappings == usable_sum,
          "slate_stats: in_use %zu + own_mappings %zu, but %zu bytes live", stats.in_use,
          stats.own_mappings, usable_sum);
    size_t sum = stats.large;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of_class = &stats.classes[i];
        sum += of_class->in_use;
        CHECK(of_class->units ==
                  of_class->in_use + of_class->free_list + of_class->free_unit + of_class->tails,
              "slate_stats: the parts of class %u are not its sum", i);
    }
    CHECK(sum == stats.in_use, "slate_stats: the classes and large blocks are %zu, in_use %zu", sum,
          stats.in_use);
}

static void step(unsigned growth)
{
    struct block *block = &slots[random_below(&generator, SLOTS)];
    size_t choice = random_below(&generator, 100);
    if (choice < 30) /* one of the newest */
        block = &slots[recent[random_below(&generator, RECENT)]];
    if (block->address == NULL) {
        if (choice % 10 < growth)
            allocate(block);
        else
            slate_free(NULL);
    } else if (choice == 99) {
        check_pattern(block, block->written);
        CHECK(slate_usable_size(block->address) == block->usable, "a usable size changed");
        if (random_below(&generator, 20) == 0)
            refuse(block);
    } else if (choice % 10 < growth) {
        resize(block);
    } else {
        release(block);
    }
}

struct run {
    uint64_t seed;
    unsigned long operations;
};

static void run(void *context)
{
    const struct run *given = context;
    generator = given->seed;
    CHECK(slate_usable_size(NULL) == 0, "slate_usable_size(NULL) is not 0");
    slate_free(NULL);
    struct slate_stats before = test_stats();
    CHECK(before.in_use == 0 && before.reserved == 0, "slate_stats counts before the first use");
    /* Grow, hold, shrink, over and over; a purge between some. */
    static const unsigned growth[] = {8, 6, 4, 1, 9, 5, 0};
    unsigned phase = 0;
    unsigned long length = given->operations / (2 * sizeof growth / sizeof *growth) + 1;
    for (operation = 1; operation <= given->operations; operation++) {
        step(growth[phase]);
        if (operation % length == 0) {
            check_stats();
            phase = (phase + 1) % (sizeof growth / sizeof *growth);
            if (phase % 3 == 2)
                slate_purge();
        }
    }
    check_stats();
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].address != NULL)
            release(&slots[i]);
    check_stats();
    CHECK(usable_sum == 0, "the model's sum is wrong");
    slate_purge();
    check_stats();
}

static unsigned long number_after(const char *option, const char *text)
{
    char *end;
    unsigned long number = text != NULL ? strtoul(text, &end, 0) : 0;
    if (text == NULL || *text == '\0' || *end != '\0') {
        fprintf(stderr, "model: %s takes a number, not \"%s\"\n", option,
                text != NULL ? text : "nothing");
        exit(TEST_USAGE);
    }
    return number;
}

int main(int argc, char **argv)
{
    /* Three seeds that stay, and one that changes. */
    uint64_t seeds[] = {1, 2, 3, (uint64_t)time(NULL)};
    size_t seed_count = sizeof seeds / sizeof *seeds;
    unsigned long operations = scaled(1000000);
    const char *only = NULL;
    for (int i = 1; i < argc; i += 2)
        if (strcmp(argv[i], "--seed") == 0) {
            seeds[0] = number_after(argv[i], argv[i + 1]);
            seed_count = 1;
        } else if (strcmp(argv[i], "--operations") == 0) {
            operations = number_after(argv[i], argv[i + 1]);
        } else if (strcmp(argv[i], "--policy") == 0 && argv[i + 1] != NULL) {
            only = argv[i + 1];
        } else {
            fputs("usage: model [--seed N] [--operations N] [--policy WORD]\n", stderr);
            return TEST_USAGE;
        }
    bool passed = true;
    for (unsigned policy = 0; policy < TEST_POLICIES; policy++)
        for (size_t i = 0; i < seed_count; i++) {
            if (only != NULL && strcmp(only, test_policies[policy]) != 0)
                continue;
            struct run given = {seeds[i], operations / seed_count};
            printf("model --policy %s --seed %llu --operations %lu\n", test_policies[policy],
                   (unsigned long long)given.seed, given.operations);
            passed &= test_with_policy(test_policies[policy], run, &given);
        }
    return passed ? TEST_PASSED : TEST_FAILED;
}
