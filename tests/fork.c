/* fork.c - a process whose other threads allocate forks again and again: each child has a whole
 * heap, with the blocks of threads that it does not have.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LOADERS = 2, HELD = 400, OWN = 600, CHILD_BLOCKS = 250, FORKS = 60 };

/* Blocks that a thread made and that nobody touches while its lock is held. */
struct loader {
    pthread_t thread;
    pthread_mutex_t lock;
    struct tagged *held[HELD];
};

static struct loader loaders[LOADERS];
static atomic_bool stop;
static atomic_ulong rounds;
static struct tagged *own[OWN]; /* of the thread that forks */

static void *load(void *argument)
{
    struct loader *loader = argument;
    uint64_t state = (uint64_t)(loader - loaders) + 100;
    struct tagged *mine[64] = {NULL};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (unsigned i = 0; i < 256; i++) {
            struct tagged **slot = &mine[random_below(&state, 64)];
            tagged_end(*slot);
            *slot = tagged_make(&state, random_size(&state));
        }
        /* While the process forks, everything but these goes on. */
        if (pthread_mutex_trylock(&loader->lock) == 0) {
            for (unsigned i = 0; i < 16; i++) {
                struct tagged **slot = &loader->held[random_below(&state, HELD)];
                tagged_end(*slot);
                *slot = tagged_make(&state, random_size(&state));
            }
            pthread_mutex_unlock(&loader->lock);
        }
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
    }
    for (unsigned i = 0; i < 64; i++)
        tagged_end(mine[i]);
    return NULL;
}

/* Threads that come and go, so that arenas are parked and taken over while the process forks. */
static void *short_life(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument;
    struct tagged *blocks[32];
    for (unsigned i = 0; i < 32; i++)
        blocks[i] = tagged_make(&state, random_below(&state, 2000));
    for (unsigned i = 0; i < 32; i++)
        tagged_end(blocks[i]);
    return NULL;
}

static void *churn(void *argument)
{
    (void)argument;
    for (uintptr_t i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, short_life, (void *)i);
        REQUIRE(error == 0, "pthread_create: %s", strerror(error));
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void *use_heap(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    static __thread struct tagged *blocks[CHILD_BLOCKS];
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        blocks[i] = tagged_make(&state, random_size(&state));
    for (unsigned i = 0; i < CHILD_BLOCKS; i += 2) {
        blocks[i] = tagged_resize(&state, blocks[i], random_size(&state));
        tagged_end(blocks[i]);
        blocks[i] = tagged_make(&state, random_size(&state));
    }
    for (unsigned i = 0; i < CHILD_BLOCKS; i++)
        tagged_end(blocks[i]);
    return NULL;
}

static void check_inherited(void)
{
    for (unsigned i = 0; i < OWN; i++)
        tagged_check(own[i]);
    for (unsigned loader = 0; loader < LOADERS; loader++)
        for (unsigned i = 0; i < HELD; i++)
            if (loaders[loader].held[i] != NULL)
                tagged_check(loaders[loader].held[i]);
}

static void be_child(uint64_t seed)
{
    uint64_t state = seed;
    /* Blocks of threads that are not here end first, half of them: the others must stay whole. */
    for (unsigned loader = 0; loader < LOADERS; loader++)
        for (unsigned i = 0; i < HELD; i += 2) {
            tagged_end(loaders[loader].held[i]);
            loaders[loader].held[i] = NULL;
        }
    use_heap(&state);
    check_inherited();
    /* More threads than the parent had, at once: they take over the arenas of threads that are
     * gone. */
    pthread_t threads[3];
    uint64_t seeds[3];
    for (unsigned i = 0; i < 3; i++) {
        seeds[i] = seed * 8 + i;
        int error = pthread_create(&threads[i], NULL, use_heap, &seeds[i]);
        REQUIRE(error == 0, "child: pthread_create: %s", strerror(error));
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_inherited();
    if (seed % 8 == 0) {
        test_stats();
        slate_purge();
        pid_t child = fork();
        REQUIRE(child >= 0, "child: fork failed");
        if (child == 0) {
            use_heap(&state);
            check_inherited();
            _exit(0);
        }
        REQUIRE(test_child_passed(child, "child of a child"), "child of a child");
    }
    for (unsigned i = 0; i < OWN; i++)
        tagged_end(own[i]);
    for (unsigned loader = 0; loader < LOADERS; loader++)
        for (unsigned i = 0; i < HELD; i++)
            tagged_end(loaders[loader].held[i]);
    use_heap(&state);
}

static void run(void *context)
{
    unsigned long forks = scaled(*(const unsigned long *)context);
    uint64_t state = 1;
    pthread_t churner;
    for (unsigned i = 0; i < OWN; i++)
        own[i] = tagged_make(&state, random_size(&state));
    for (unsigned i = 0; i < LOADERS; i++) {
        pthread_mutex_init(&loaders[i].lock, NULL);
        int error = pthread_create(&loaders[i].thread, NULL, load, &loaders[i]);
        REQUIRE(error == 0, "pthread_create: %s", strerror(error));
    }
    int error = pthread_create(&churner, NULL, churn, NULL);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
    while (atomic_load(&rounds) < 8)
        sched_yield();
    for (unsigned long i = 0; i < forks; i++) {
        /* So that the held blocks do not change; everything else goes on. */
        for (unsigned loader = 0; loader < LOADERS; loader++)
            pthread_mutex_lock(&loaders[loader].lock);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            be_child(i + 1);
            _exit(0);
        }
        for (unsigned loader = 0; loader < LOADERS; loader++)
            pthread_mutex_unlock(&loaders[loader].lock);
        REQUIRE(child > 0, "fork %lu failed", i + 1);
        unsigned slot = (unsigned)random_below(&state, OWN);
        own[slot] = tagged_resize(&state, own[slot], random_size(&state));
        char what[32];
        snprintf(what, sizeof what, "child %lu", i + 1);
        REQUIRE(test_child_passed(child, what), "%s", what);
    }
    atomic_store(&stop, true);
    pthread_join(churner, NULL);
    for (unsigned loader = 0; loader < LOADERS; loader++) {
        pthread_join(loaders[loader].thread, NULL);
        for (unsigned i = 0; i < HELD; i++)
            tagged_end(loaders[loader].held[i]);
    }
    for (unsigned i = 0; i < OWN; i++)
        tagged_end(own[i]);
    slate_purge();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.in_use == 0, "parent: nothing lives, but slate_stats knows of %zu bytes",
            stats.in_use);
}

/* A thread that has no arena and allocates nothing takes locks all the same. */
static void *ask(void *block)
{
    struct slate_stats stats;
    while (!atomic_load(&stop)) {
        REQUIRE(slate_usable_size(block) != 0, "the block is unknown");
        slate_stats(&stats, sizeof stats);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void run_beside_asker(void *context)
{
    unsigned long forks = scaled(*(const unsigned long *)context);
    pthread_t asker;
    test_tune("SLATE_SLICE", "16M");
    /* Beyond any pool there is then; Valgrind has less to give. */
    size_t size = (size_t)(test_under_valgrind() ? 16 : 64) << 30;
    void *block = slate_alloc(size);
    REQUIRE(block != NULL, "no mapping of %zu bytes", size);
    int error = pthread_create(&asker, NULL, ask, block);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
    while (atomic_load(&rounds) == 0)
        sched_yield();
    for (unsigned long i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            slate_free(block);
            _exit(slate_alloc(20) != NULL ? 0 : 1);
        }
        REQUIRE(child > 0 && test_child_passed(child, "child beside an asker"), "child %lu", i);
    }
    atomic_store(&stop, true);
    pthread_join(asker, NULL);
}

int main(void)
{
    alarm(120); /* a child that waits for ever is a failure, not a wait */
#if defined(__SANITIZE_THREAD__)
    puts("skipped: ThreadSanitizer allows no threads in the child of a process with threads");
    return TEST_SKIPPED;
#elif defined(__SANITIZE_ADDRESS__)
    puts("skipped: AddressSanitizer's own allocator may be locked for ever in the child of a "
         "process with threads");
    return TEST_SKIPPED;
#endif
    bool passed = true;
    for (unsigned i = 0; i < TEST_POLICIES; i++) {
        unsigned long forks = strcmp(test_policies[i], "shared") == 0 ? FORKS : FORKS / 10;
        passed &= test_with_policy(test_policies[i], run, &forks);
    }
    unsigned long forks = FORKS;
    passed &= test_with_policy("switch", run_beside_asker, &forks);
    return passed ? TEST_PASSED : TEST_FAILED;
}
