/* no_malloc.c - the library calls no allocating function of the C library: here these functions
 * abort the process while a call of slate is under way.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

/* Set while the thread is inside a function of slate, or in what slate does at a thread's end. */
static __thread volatile bool inside __attribute__((tls_model("initial-exec")));
/* How often the program itself got memory from the functions below: they are really in place. */
static unsigned long calls;

#if !TEST_SANITIZER /* their runtime starts with functions of its own, which must be the first */
static void refuse_inside(const char *name)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (!inside)
        return;
    inside = false;
    static const char before[] = "FAILED: slate called ";
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 ||
        write(STDERR_FILENO, name, strlen(name)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(TEST_FAILED);
    abort();
}

/* The real functions; the first calls, made while they are looked up, are served from here. */
static char early[65536] __attribute__((aligned(16)));
static size_t early_used;

static void *early_alloc(size_t size)
{
    size_t start = __atomic_fetch_add(&early_used, (size + 15) & ~(size_t)15, __ATOMIC_RELAXED);
    return start + size <= sizeof early ? early + start : NULL;
}

static bool is_early(const void *block)
{
    return (const char *)block >= early && (const char *)block < early + sizeof early;
}

static void *next_function(const char *name)
{
    static __thread bool looking __attribute__((tls_model("initial-exec")));
    if (looking)
        return NULL;
    looking = true;
    void *found = dlsym(RTLD_NEXT, name);
    looking = false;
    return found;
}

#define NEXT(pointer, name)                                                                        \
    do {                                                                                           \
        if ((pointer) == NULL)                                                                     \
            *(void **)&(pointer) = next_function(name);                                            \
    } while (0)

void *malloc(size_t size)
{
    static void *(*next)(size_t);
    refuse_inside("malloc");
    NEXT(next, "malloc");
    return next != NULL ? next(size) : early_alloc(size);
}

void *calloc(size_t count, size_t size)
{
    static void *(*next)(size_t, size_t);
    refuse_inside("calloc");
    NEXT(next, "calloc");
    return next != NULL ? next(count, size) : early_alloc(count * size);
}

void *realloc(void *block, size_t size)
{
    static void *(*next)(void *, size_t);
    refuse_inside("realloc");
    NEXT(next, "realloc");
    return next(block, size);
}

void free(void *block)
{
    static void (*next)(void *);
    if (block == NULL || is_early(block))
        return;
    refuse_inside("free");
    NEXT(next, "free");
    next(block);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    static int (*next)(void **, size_t, size_t);
    refuse_inside("posix_memalign");
    NEXT(next, "posix_memalign");
    return next(block, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    static void *(*next)(size_t, size_t);
    refuse_inside("aligned_alloc");
    NEXT(next, "aligned_alloc");
    return next(alignment, size);
}

#endif

#define INSIDE(call)                                                                               \
    do {                                                                                           \
        inside = true;                                                                             \
        call;                                                                                      \
        inside = false;                                                                            \
    } while (0)

/* ---- every function of the interface */

enum { BLOCKS = 3000 };

static void use_heap(uint64_t state)
{
    static __thread char *blocks[BLOCKS];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            size_t size = random_size(&state);
            switch (random_below(&state, 4)) {
            case 0:
                INSIDE(blocks[i] = slate_zalloc(size));
                break;
            case 1:
                INSIDE(blocks[i] = slate_aligned_alloc((size_t)16 << size % 10, size));
                break;
            default:
                INSIDE(blocks[i] = slate_alloc(size));
                break;
            }
            REQUIRE(blocks[i] != NULL, "an allocation of %zu bytes failed", size);
        }
        for (unsigned i = 0; i < BLOCKS; i += 3) {
            size_t size = random_size(&state), usable;
            INSIDE(blocks[i] = slate_realloc(blocks[i], size));
            REQUIRE(blocks[i] != NULL, "slate_realloc to %zu bytes failed", size);
            INSIDE(usable = slate_usable_size(blocks[i]));
            REQUIRE(usable >= size, "slate_usable_size says %zu of %zu bytes", usable, size);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
            if (i & 1)
                INSIDE(slate_free(blocks[i]));
            else
                INSIDE(slate_free_sized(blocks[i], slate_usable_size(blocks[i])));
    }
}

/* Blocks that the pool has no room for, moved by their page tables too. */
static void use_large(void)
{
    char *block, *other;
    INSIDE(block = slate_alloc(9 * MIB));
    INSIDE(other = slate_alloc(64 * MIB));
    REQUIRE(block != NULL && other != NULL, "large blocks failed");
    for (size_t size = 16 * MIB; size <= 48 * MIB; size += 16 * MIB) {
        INSIDE(block = slate_realloc(block, size));
        REQUIRE(block != NULL, "slate_realloc to %zu MiB failed", size >> 20);
    }
    INSIDE(slate_free(block));
    INSIDE(slate_free(other));
    INSIDE(block = slate_alloc((size_t)1 << 62));
    REQUIRE(block == NULL, "slate_alloc(2^62) succeeded");
    volatile size_t alignment = 3;
    INSIDE(block = slate_aligned_alloc(alignment, 1));
    REQUIRE(block == NULL, "slate_aligned_alloc(3, 1) succeeded");
}

static pthread_key_t last_key;
static char *handed_over; /* from one thread to the next */

/* Runs before slate's own destructor, whose key is made later: what follows on this thread is
 * slate's. */
static void last_destructor(void *value)
{
    (void)value;
    inside = true;
}

static void *thread_main(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument;
    pthread_setspecific(last_key, argument);
    char *other = __atomic_exchange_n(&handed_over, NULL, __ATOMIC_ACQ_REL);
    INSIDE(slate_free(other));
    use_heap(state);
    char *block;
    INSIDE(block = slate_alloc(100));
    other = __atomic_exchange_n(&handed_over, block, __ATOMIC_ACQ_REL);
    INSIDE(slate_free(other));
    return NULL;
}

static void use_rest(void)
{
    struct slate_stats stats;
    size_t count;
    const char *version;
    const struct slate_tunable *tunables;
    INSIDE(slate_purge());
    INSIDE(slate_stats(&stats, sizeof stats));
    INSIDE(version = slate_version());
    INSIDE(tunables = slate_tunables(&count));
    REQUIRE(strcmp(version, SLATE_VERSION) == 0 && tunables != NULL && count > 0,
            "slate_version or slate_tunables failed");
    INSIDE(slate_tune("SLATE_SWITCH", "16M"));
}

static void run(void *context)
{
    (void)context;
    /* A bad value and the line about it, before and at the first use. */
    setenv("SLATE_SWITCH", "none", 1);
    int error;
    INSIDE(error = slate_tune("SLATE_ARENAS", "many"));
    REQUIRE(error == EINVAL, "slate_tune took a bad value");
    INSIDE(error = slate_tune("SLATE_ARENAS", "3")); /* the last of them is shared */
    REQUIRE(error == 0, "slate_tune failed");
    INSIDE(error = slate_tune("SLATE_VERBOSE", "1"));
    REQUIRE(error == 0, "slate_tune failed");
    error = pthread_key_create(&last_key, last_destructor);
    REQUIRE(error == 0, "pthread_key_create: %s", strerror(error));
    use_heap(1);
    use_large();
    use_rest();
    for (unsigned round = 0; round < 3; round++) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) {
            error = pthread_create(&threads[i], NULL, thread_main, (void *)(i + 2));
            REQUIRE(error == 0, "pthread_create: %s", strerror(error));
            if (round == 0)
                pthread_join(threads[i], NULL);
        }
        for (unsigned i = 0; i < 4 && round != 0; i++)
            pthread_join(threads[i], NULL);
        use_rest();
    }
    /* A child's first steps. */
    pid_t child = fork();
    REQUIRE(child >= 0, "fork failed");
    if (child == 0) {
        use_heap(9);
        use_rest();
        _exit(0);
    }
    REQUIRE(test_child_passed(child, "child"), "child");
}

int main(void)
{
    if (TEST_SANITIZER || test_under_valgrind()) {
        puts("skipped: sanitizers and Valgrind take malloc for themselves");
        return TEST_SKIPPED;
    }
    bool passed = true;
    for (unsigned i = 0; i < TEST_POLICIES; i++)
        passed &= test_with_policy(test_policies[i], run, NULL);
    /* The functions above are in use, and find a call from inside. */
    char *volatile copy = strdup("used"); /* volatile: or a compiler leaves both calls out */
    free(copy);
    REQUIRE(calls > 0, "malloc of this program is not in place");
    pid_t child = fork();
    REQUIRE(child >= 0, "fork failed");
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(0);
        char *volatile text;
        INSIDE(text = malloc(10));
        _exit(text != NULL ? 0 : 1);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFSIGNALED(status),
            "a call of malloc from inside was not found");
    return passed ? TEST_PASSED : TEST_FAILED;
}
