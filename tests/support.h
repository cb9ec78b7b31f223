/* support.h - what the tests of the whole library share: failing, random numbers, scale, memory.
 *
 * SPDX-License-Identifier: MIT
 *
 * Tests count and never time.  SLATE_TEST_SCALE=N divides the numbers of operations by N; builds
 * with sanitizers and runs under Valgrind divide on their own.
 */
#ifndef SLATE_TEST_SUPPORT_H
#define SLATE_TEST_SUPPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slate.h>

enum { TEST_PASSED = 0, TEST_FAILED = 1, TEST_USAGE = 2, TEST_SKIPPED = 77 };

#define MIB ((size_t)1 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZER 1
#endif
#endif
#ifndef TEST_SANITIZER
#define TEST_SANITIZER 0
#endif

static const char *const test_policies[] = {"never", "always", "switch", "shared"};
enum { TEST_POLICIES = sizeof test_policies / sizeof *test_policies };

static inline __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...)
{
    fflush(stdout);
    va_list arguments;
    va_start(arguments, format);
    fputs("FAILED: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(stderr);
    _exit(TEST_FAILED);
}

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

static inline bool test_under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload != NULL && strstr(preload, "vgpreload") != NULL;
}

static inline unsigned long test_scale(void)
{
    const char *text = getenv("SLATE_TEST_SCALE");
    if (text != NULL) {
        char *end;
        unsigned long scale = strtoul(text, &end, 10);
        if (*end != '\0' || end == text || scale == 0) {
            fprintf(stderr, "SLATE_TEST_SCALE=\"%s\": allowed is a number from 1 up\n", text);
            exit(TEST_USAGE);
        }
        return scale;
    }
    return test_under_valgrind() ? 50 : TEST_SANITIZER ? 20 : 1;
}

static inline unsigned long scaled(unsigned long operations)
{
    unsigned long result = operations / test_scale();
    return result != 0 ? result : 1;
}

/* Ends the test as skipped where the memory of a process is not the heap's alone. */
static inline void skip_where_memory_is_not_ours(void)
{
    if (TEST_SANITIZER || test_under_valgrind()) {
        puts("skipped: under sanitizers and Valgrind the process holds memory of theirs");
        exit(TEST_SKIPPED);
    }
}

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* From 0 to below - 1. */
static inline size_t random_below(uint64_t *state, size_t below)
{
    return (size_t)(next_random(state) % below);
}

/* Between 2^low and 2^high, each doubling as likely as the next. */
static inline size_t random_doubling(uint64_t *state, unsigned low, unsigned high)
{
    unsigned log2 = low + (unsigned)random_below(state, high - low);
    return ((size_t)1 << log2) + random_below(state, (size_t)1 << log2);
}

/* Sizes as compilers ask for them: most at most 512 bytes, a few very common, some to 16 KiB, few
 * large. */
static inline size_t random_size(uint64_t *state)
{
    static const uint16_t common[] = {56, 80, 40, 96, 24, 104, 48, 64, 512, 1024};
    size_t kind = random_below(state, 1000);
    if (kind < 450)
        return common[random_below(state, sizeof common / sizeof *common)];
    if (kind < 850)
        return random_below(state, 513);
    if (kind < 980)
        return random_doubling(state, 9, 14);
    if (kind < 999)
        return random_doubling(state, 14, 17);
    return random_doubling(state, 17, 22);
}

/* ---- blocks that tell what they hold, for handing them from thread to thread */

struct tagged {
    uint64_t seed;
    size_t size;
};

/* Words of 8 bytes behind the tag: the first few, and the last. */
enum { TAGGED_WORDS = 6 };

static inline size_t tagged_word_at(const struct tagged *block, unsigned index)
{
    size_t words = (block->size - sizeof *block) / 8;
    if (index + 1 == TAGGED_WORDS)
        return words - 1;
    return index < words ? index : words - 1;
}

static inline void tagged_write(struct tagged *block, uint64_t seed, size_t size)
{
    block->seed = seed;
    block->size = size;
    uint64_t *words = (uint64_t *)(void *)(block + 1);
    if (size >= sizeof *block + 8)
        for (unsigned i = 0; i < TAGGED_WORDS; i++)
            words[tagged_word_at(block, i)] = seed ^ tagged_word_at(block, i);
}

static inline void tagged_check(const struct tagged *block)
{
    const uint64_t *words = (const uint64_t *)(const void *)(block + 1);
    REQUIRE(block->size >= sizeof *block && block->size <= 64 * MIB,
            "block %p: its tag was overwritten", (const void *)block);
    if (block->size >= sizeof *block + 8)
        for (unsigned i = 0; i < TAGGED_WORDS; i++)
            REQUIRE(words[tagged_word_at(block, i)] == (block->seed ^ tagged_word_at(block, i)),
                    "block %p of %zu bytes: word %zu was overwritten", (const void *)block,
                    block->size, tagged_word_at(block, i));
}

/* A new block, made in one of the ways there are; `size` grows to hold the tag. */
static inline struct tagged *tagged_make(uint64_t *state, size_t size)
{
    if (size < sizeof(struct tagged))
        size = sizeof(struct tagged);
    struct tagged *block;
    size_t way = random_below(state, 16), alignment = 16;
    if (way == 0) {
        alignment = (size_t)16 << random_below(state, 9);
        block = slate_aligned_alloc(alignment, size);
    } else if (way < 4) {
        block = slate_zalloc(size);
        if (block != NULL)
            for (size_t i = 0; i < size; i += i < 4096 ? 1 : 1009)
                REQUIRE(((char *)block)[i] == 0, "slate_zalloc(%zu): byte %zu is not zero", size,
                        i);
    } else {
        block = slate_alloc(size);
    }
    REQUIRE(block != NULL, "an allocation of %zu bytes failed", size);
    REQUIRE(((uintptr_t)block & (alignment - 1)) == 0, "block %p is not aligned to %zu",
            (void *)block, alignment);
    tagged_write(block, next_random(state), size);
    return block;
}

static inline struct tagged *tagged_resize(uint64_t *state, struct tagged *block, size_t size)
{
    tagged_check(block);
    size_t old = block->size;
    uint64_t seed = block->seed;
    if (size < sizeof *block)
        size = sizeof *block;
    struct tagged *moved = slate_realloc(block, size);
    REQUIRE(moved != NULL, "slate_realloc from %zu to %zu bytes failed", old, size);
    REQUIRE(moved->seed == seed && moved->size == old, "slate_realloc lost the contents");
    if (size >= old)
        tagged_check(moved);
    tagged_write(moved, next_random(state), size);
    return moved;
}

static inline void tagged_end(struct tagged *block)
{
    if (block == NULL)
        return;
    tagged_check(block);
    size_t size = block->size;
    block->size = 0; /* a second end is found */
    if (size & 16)
        slate_free_sized(block, size);
    else
        slate_free(block);
}

/* Memory of this process, in bytes; page tables not counted.  Not from statm, whose counts lag
 * behind by some pages a processor. */
static inline size_t test_resident(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    size_t kilobytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Rss: %zu kB", &kilobytes) == 1)
            break;
    REQUIRE(kilobytes != 0, "/proc/self/smaps_rollup cannot be read");
    fclose(file);
    return kilobytes << 10;
}

static inline struct slate_stats test_stats(void)
{
    struct slate_stats stats;
    REQUIRE(slate_stats(&stats, sizeof stats) == 0, "slate_stats failed");
    return stats;
}

static inline void test_tune(const char *name, const char *value)
{
    int error = slate_tune(name, value);
    REQUIRE(error == 0, "slate_tune(\"%s\", \"%s\"): %s", name, value, strerror(error));
}

/* Waits for a child and says what it did: true when it ended with 0. */
static inline bool test_child_passed(pid_t child, const char *what)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        fail("waitpid failed");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status))
        fprintf(stderr, "FAILED: %s: killed by signal %d\n", what, WTERMSIG(status));
    else
        fprintf(stderr, "FAILED: %s: exit %d\n", what, WEXITSTATUS(status));
    return false;
}

/* Runs `run` in a child of its own with that policy; the library must not have been used yet. */
static inline bool test_with_policy(const char *policy, void (*run)(void *), void *context)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0, "fork failed");
    if (child == 0) {
        test_tune("SLATE_POLICY", policy);
        run(context);
        fflush(NULL);
        _exit(0);
    }
    char what[64];
    snprintf(what, sizeof what, "policy %s", policy);
    return test_child_passed(child, what);
}

#endif
