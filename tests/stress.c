/* stress.c - more threads than processors, and than arenas, do everything at once: small and large
 * blocks, foreign frees, threads that end and are replaced, slate_stats and slate_purge meanwhile.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    SEATS = 8,          /* threads at a time */
    SLOTS = 512,        /* blocks of a seat */
    PLACES = 512,       /* through which blocks change threads */
    OPERATIONS = 16000, /* of a seat */
    LIVES = 12,         /* threads that a seat has, one after the other */
    STATS_EVERY = 4000, /* operations between two looks at the whole heap */
};

/* What a seat holds; the thread that sits there is its only user. */
struct seat {
    pthread_t thread;
    uint64_t random;
    unsigned lives;
    struct tagged *slots[SLOTS];
};

static struct seat seats[SEATS];
static _Atomic(struct tagged *) places[PLACES];
static atomic_size_t purged;

static struct tagged *exchange(uint64_t *state, struct tagged *block)
{
    return atomic_exchange_explicit(&places[random_below(state, PLACES)], block,
                                    memory_order_acq_rel);
}

static void step(struct seat *seat)
{
    uint64_t *state = &seat->random;
    struct tagged **slot = &seat->slots[random_below(state, SLOTS)];
    errno = 0;
    switch (random_below(state, 8)) {
    case 0:
    case 1:
        if (*slot == NULL)
            *slot = tagged_make(state, random_size(state));
        else
            *slot = tagged_resize(state, *slot, random_size(state));
        break;
    case 2: /* gives a block away, and gets another or none */
        *slot = exchange(state, *slot);
        break;
    case 3:
        tagged_end(exchange(state, NULL));
        break;
    case 4: /* short-lived */
        tagged_end(tagged_make(state, random_size(state)));
        break;
    case 5:
        if (*slot != NULL)
            REQUIRE(slate_usable_size(*slot) >= (*slot)->size,
                    "slate_usable_size is less than was asked for");
        break;
    default:
        tagged_end(*slot);
        *slot = NULL;
        if (random_below(state, 2) == 0)
            *slot = tagged_make(state, random_size(state));
        break;
    }
    REQUIRE(errno == 0, "errno became %d", errno);
    if (random_below(state, STATS_EVERY) == 0) {
        struct slate_stats stats = test_stats();
        REQUIRE(stats.committed <= stats.reserved, "slate_stats: %zu committed of %zu",
                stats.committed, stats.reserved);
        atomic_fetch_add(&purged, slate_purge());
    }
}

static void *sit(void *argument)
{
    struct seat *seat = argument;
    unsigned long operations = scaled(OPERATIONS) / LIVES + 1;
    for (unsigned long i = 0; i < operations; i++)
        step(seat);
    return NULL;
}

static void start(struct seat *seat)
{
    int error = pthread_create(&seat->thread, NULL, sit, seat);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
    seat->lives++;
}

static void run(void *context)
{
    test_tune("SLATE_ARENAS", context);
    for (unsigned i = 0; i < SEATS; i++) {
        seats[i].random = i + 1;
        start(&seats[i]);
    }
    for (unsigned life = 1; life < LIVES; life++)
        for (unsigned i = 0; i < SEATS; i++) {
            pthread_join(seats[i].thread, NULL);
            start(&seats[i]);
        }
    size_t live = 0;
    for (unsigned i = 0; i < SEATS; i++) {
        pthread_join(seats[i].thread, NULL);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            live += seats[i].slots[slot] != NULL;
            tagged_end(seats[i].slots[slot]);
        }
    }
    REQUIRE(live > SEATS * SLOTS / 8, "only %zu blocks lived at the end", live);
    for (unsigned i = 0; i < PLACES; i++)
        tagged_end(atomic_load(&places[i]));
    slate_purge();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.in_use == 0 && stats.own_mappings == 0,
            "nothing lives, but slate_stats knows of %zu bytes in use and %zu in mappings",
            stats.in_use, stats.own_mappings);
}

int main(void)
{
    static const char *const arenas[] = {"64", "2", "4"};
    bool passed = true;
    for (unsigned policy = 0; policy < TEST_POLICIES; policy++)
        for (unsigned i = 0; i < sizeof arenas / sizeof *arenas; i++) {
            printf("policy %s, %s arenas\n", test_policies[policy], arenas[i]);
            passed &= test_with_policy(test_policies[policy], run, (void *)(uintptr_t)arenas[i]);
        }
    return passed ? TEST_PASSED : TEST_FAILED;
}
