/* producer.c - one thread makes blocks, another ends them: memory stays near what lives, however
 * long it goes on.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <pthread.h>
#include <semaphore.h>

enum {
    BATCH = 1000,
    BATCHES = 8,
    BEHIND = 5, /* batches that the consumer leaves full, so that much lives at any time */
    ROUNDS = 2400,
    LONG = 40
};

/* How a pair runs. */
struct pair {
    const char *policy;
    const char *arenas;       /* 2: both threads share one arena, the first belongs to main */
    bool consumer_allocates;  /* else it only frees */
    bool producer_goes_large; /* at times the producer makes only blocks that are no class's */
    unsigned divisor;         /* of the number of rounds */
};

static const struct pair pairs[] = {
    {"shared", "64", false, false, 1}, {"shared", "64", true, false, 2},
    {"shared", "2", true, false, 2},   {"shared", "64", false, true, 2},
    {"switch", "64", false, false, 2}, {"never", "64", false, false, 4},
    {"always", "64", true, false, 4},
};

/* Batches go round between two threads: `full` of them wait for the consumer, `empty` ones for the
 * producer. */
static struct tagged *batches[BATCHES][BATCH];
static sem_t full, empty;
static const struct pair *pair;
static unsigned long rounds, factor = 1;

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

/* What the producer saw; read when it has ended. */
static struct {
    size_t live;   /* the most that BATCHES batches in a row held, usable bytes */
    size_t memory; /* the most memory of the process */
} seen;

static void *produce(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    size_t held[BATCHES] = {0};
    for (unsigned long round = 0; round < rounds; round++) {
        wait_for(&empty);
        struct tagged **batch = batches[round % BATCHES];
        size_t live = 0;
        held[round % BATCHES] = 0;
        bool large = pair->producer_goes_large && round / 100 % 2 == 1;
        for (unsigned i = 0; i < BATCH; i++) {
            batch[i] = NULL;
            if (large && i % 16 != 0)
                continue;
            size_t size = large ? random_doubling(&state, 15, 17) : random_size(&state);
            batch[i] = tagged_make(&state, size);
            held[round % BATCHES] += slate_usable_size(batch[i]);
        }
        for (unsigned i = 0; i < BATCHES; i++)
            live += held[i];
        seen.live = live > seen.live ? live : seen.live;
        size_t resident = test_resident();
        seen.memory = resident > seen.memory ? resident : seen.memory;
        sem_post(&full);
    }
    for (unsigned i = 0; i < BEHIND; i++)
        sem_post(&full);
    return NULL;
}

static void *consume(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    for (unsigned i = 0; i < BEHIND; i++)
        wait_for(&full);
    for (unsigned long round = 0; round < rounds; round++) {
        wait_for(&full);
        struct tagged **batch = batches[round % BATCHES];
        struct tagged *own = NULL;
        for (unsigned i = 0; i < BATCH; i++) {
            tagged_end(batch[i]);
            if (pair->consumer_allocates && i % 16 == 0) {
                tagged_end(own);
                own = tagged_make(&state, random_size(&state));
            }
        }
        tagged_end(own);
        sem_post(&empty);
    }
    return NULL;
}

static void run(void *context)
{
    pair = context;
    test_tune("SLATE_ARENAS", pair->arenas);
    rounds = scaled(ROUNDS * factor) / pair->divisor;
    slate_free(slate_alloc(1));
    size_t before = test_resident();
    pthread_t producer, consumer;
    uint64_t seeds[2] = {1, 2};
    REQUIRE(sem_init(&full, 0, 0) == 0 && sem_init(&empty, 0, BATCHES) == 0, "sem_init failed");
    REQUIRE(pthread_create(&producer, NULL, produce, &seeds[0]) == 0 &&
                pthread_create(&consumer, NULL, consume, &seeds[1]) == 0,
            "pthread_create failed");
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    /* Class slices on huge pages begin with one for each class. */
    size_t spread = strcmp(pair->policy, "always") == 0 ? 2 * SLATE_CLASSES * 2 * MIB : 0;
    size_t memory = seen.memory - before;
    printf("%s, %s arenas%s%s: %lu rounds, live at most %zu KiB, memory %zu KiB\n", pair->policy,
           pair->arenas, pair->consumer_allocates ? ", both allocate" : ", one only frees",
           pair->producer_goes_large ? ", large blocks for long" : "", rounds, seen.live >> 10,
           memory >> 10);
    REQUIRE(memory <= seen.live + seen.live / 4 + 8 * MIB + spread,
            "%zu KiB of memory for %zu KiB of live blocks", memory >> 10, seen.live >> 10);
    slate_purge();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.in_use == 0, "nothing lives, but slate_stats knows of %zu bytes", stats.in_use);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--long") == 0) {
        factor = LONG;
    } else if (argc != 1) {
        fputs("usage: producer [--long]\n", stderr);
        return TEST_USAGE;
    }
    skip_where_memory_is_not_ours();
    bool passed = true;
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (factor == 1 || i == 0)
            passed &= test_with_policy(pairs[i].policy, run, (void *)(uintptr_t)&pairs[i]);
    return passed ? TEST_PASSED : TEST_FAILED;
}
