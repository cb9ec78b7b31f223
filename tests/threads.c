/* threads.c - blocks that go from thread to thread, threads that come and go, threads that only
 * free, and destructors of threads that allocate.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, function, argument);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
}

/* After slate_purge on the only thread that runs, every block that was ended is known to be. */
static void require_all_free(const char *when)
{
    slate_purge();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.in_use == 0 && stats.own_mappings == 0,
            "%s: slate_stats knows of %zu bytes in use and %zu in mappings, but nothing lives",
            when, stats.in_use, stats.own_mappings);
}

/* ---- a ring: each thread puts its blocks into places from which any other takes them */

enum { RING_THREADS = 4, RING_PLACES = 1024 };

static _Atomic(struct tagged *) ring[RING_PLACES];

static void *exchange_blocks(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    for (unsigned long i = scaled(60000); i > 0; i--) {
        struct tagged *mine = tagged_make(&state, random_size(&state));
        /* Hands a block over with release; whoever takes it out acquires it. */
        struct tagged *other = atomic_exchange_explicit(&ring[random_below(&state, RING_PLACES)],
                                                        mine, memory_order_acq_rel);
        if (other != NULL && random_below(&state, 4) == 0)
            other = tagged_resize(&state, other, random_size(&state));
        tagged_end(other);
    }
    return NULL;
}

static void test_ring(void)
{
    pthread_t threads[RING_THREADS];
    uint64_t seeds[RING_THREADS];
    for (unsigned i = 0; i < RING_THREADS; i++) {
        seeds[i] = i + 1;
        start(&threads[i], exchange_blocks, &seeds[i]);
    }
    for (unsigned i = 0; i < RING_THREADS; i++)
        pthread_join(threads[i], NULL);
    struct slate_stats stats = test_stats();
    size_t live = 0;
    for (unsigned i = 0; i < RING_PLACES; i++) {
        struct tagged *block = atomic_load(&ring[i]);
        live += block != NULL ? slate_usable_size(block) : 0;
        tagged_end(block);
        atomic_store(&ring[i], NULL);
    }
    REQUIRE(stats.in_use + stats.own_mappings >= live,
            "slate_stats knows of %zu bytes, but %zu live", stats.in_use, live);
    require_all_free("blocks exchanged through a ring");
}

/* ---- threads that come and go */

enum { SHORT_THREADS = 10000, SHORT_BLOCKS = 64 };

/* Left behind by a thread for the next one. */
static struct tagged *left_behind[SHORT_BLOCKS];

static void *short_life(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    for (unsigned i = 0; i < SHORT_BLOCKS; i++) {
        tagged_end(left_behind[i]);
        left_behind[i] = tagged_make(&state, random_below(&state, 512));
        tagged_end(tagged_make(&state, random_doubling(&state, 5, 15)));
    }
    return NULL;
}

static void test_coming_and_going(bool many)
{
    unsigned long count = scaled(many ? SHORT_THREADS : SHORT_THREADS / 10);
    size_t arenas_before = test_stats().arenas, resident_early = 0;
    for (unsigned long i = 0; i < count; i++) {
        uint64_t seed = i;
        pthread_t thread;
        start(&thread, short_life, &seed);
        pthread_join(thread, NULL);
        if (i == count / 10)
            resident_early = test_resident();
    }
    size_t resident = test_resident();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.arenas <= arenas_before + 1,
            "%lu threads, one at a time, used %zu arenas where there were %zu", count, stats.arenas,
            arenas_before);
    if (!TEST_SANITIZER && !test_under_valgrind())
        REQUIRE(resident <= resident_early + MIB,
                "threads that come and go: memory went from %zu to %zu KiB", resident_early >> 10,
                resident >> 10);
    for (unsigned i = 0; i < SHORT_BLOCKS; i++)
        tagged_end(left_behind[i]);
    require_all_free("threads that came and went");
}

/* ---- a thread that only frees what others, who are gone, have made */

enum { GIVEN_BLOCKS = 50000 };

static struct tagged *given[GIVEN_BLOCKS];

static void *make_and_leave(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    for (unsigned long i = 0; i < scaled(GIVEN_BLOCKS); i++)
        given[i] = tagged_make(&state, random_size(&state));
    return NULL;
}

static void *only_free(void *argument)
{
    (void)argument;
    for (unsigned long i = 0; i < scaled(GIVEN_BLOCKS); i++)
        tagged_end(given[i]);
    return NULL;
}

static void test_only_free(void)
{
    size_t committed = 0;
    for (uint64_t round = 0; round < 4; round++) {
        pthread_t thread;
        uint64_t seed = 77; /* the same sizes in each round */
        start(&thread, make_and_leave, &seed);
        pthread_join(thread, NULL);
        start(&thread, only_free, NULL);
        pthread_join(thread, NULL);
        struct slate_stats stats = test_stats();
        if (round == 0)
            committed = stats.committed;
        REQUIRE(stats.committed <= committed + committed / 4 + 4 * MIB,
                "round %u of making and freeing the same blocks: %zu MiB committed, %zu at first",
                (unsigned)round, stats.committed >> 20, committed >> 20);
    }
    require_all_free("a thread that only frees");
}

/* ---- destructors of thread-specific values that run after the thread's arena was parked */

static pthread_key_t key;
static atomic_uint destructors;

static void destructor(void *value)
{
    uint64_t state = 5;
    tagged_end(value);
    for (unsigned i = 0; i < 100; i++) {
        struct tagged *block = tagged_make(&state, random_size(&state));
        block = tagged_resize(&state, block, random_size(&state));
        tagged_end(block);
    }
    tagged_end(left_behind[0]);
    left_behind[0] = tagged_make(&state, 100);
    atomic_fetch_add(&destructors, 1);
}

static void *ends_with_destructor(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    int error = pthread_setspecific(key, tagged_make(&state, 48));
    REQUIRE(error == 0, "pthread_setspecific: %s", strerror(error));
    return NULL;
}

/* A thread whose only use of slate is in a destructor. */
static void *only_destructor(void *argument)
{
    int error = pthread_setspecific(key, argument);
    REQUIRE(error == 0, "pthread_setspecific: %s", strerror(error));
    return NULL;
}

static void test_destructors(void)
{
    enum { ROUNDS = 50 };
    uint64_t state = 9;
    int error = pthread_key_create(&key, destructor);
    REQUIRE(error == 0, "pthread_key_create: %s", strerror(error));
    left_behind[0] = NULL;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        start(&thread, ends_with_destructor, &i);
        pthread_join(thread, NULL);
        start(&thread, only_destructor, tagged_make(&state, 48));
        pthread_join(thread, NULL);
    }
    REQUIRE(atomic_load(&destructors) == 2 * ROUNDS, "%u of %d destructors ran",
            atomic_load(&destructors), 2 * ROUNDS);
    tagged_end(left_behind[0]);
    left_behind[0] = NULL;
    require_all_free("destructors");
}

static void run(void *context)
{
    uint64_t state = 1;
    tagged_end(tagged_make(&state, 100));
    test_ring();
    test_coming_and_going(*(const bool *)context);
    memset(left_behind, 0, sizeof left_behind);
    test_only_free();
    test_destructors();
}

int main(void)
{
    bool passed = true;
    for (unsigned i = 0; i < TEST_POLICIES; i++) {
        bool many = strcmp(test_policies[i], "shared") == 0;
        passed &= test_with_policy(test_policies[i], run, &many);
    }
    return passed ? TEST_PASSED : TEST_FAILED;
}
