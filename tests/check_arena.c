/* tests/check_arena.c - thread arenas: claimed, parked, shared, orphaned by fork.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "arena.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include "check_support.h"
#include "pool.h"
#include "slice.h"
#include "tunables.h"

static void run_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, body, argument), 0);
    require_equal(pthread_join(thread, NULL), 0);
}

static size_t arenas_used(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats.arenas;
}

/* ---- claim and park */

static unsigned number_seen;

static void *see_number(void *size)
{
    void *block = slate_alloc((size_t)(uintptr_t)size);
    require(block != NULL);
    memset(block, 1, (size_t)(uintptr_t)size);
    require(slatei_arena_owned());
    struct slatei_arena *arena = (struct slatei_arena *)(void *)slate_self_;
    number_seen = arena->front.number;
    require(slatei_arena_of(number_seen) == arena);
    require(slatei_arena_at(number_seen) == arena);
    require_equal(arena->front.tag, number_seen << SLATE_MAP_SHIFT_ | SLATEI_MAP_CLASS);
    require_equal(arena->front.base, slatei_reserve.base);
    require_equal(arena->front.span, slatei_reserve.span);
    require_equal(atomic_load(&arena->state), SLATEI_ARENA_CLAIMED);
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        require_equal(arena->front.entry[i].size, slate_class_size_(i));
    slate_free(block);
    return NULL;
}

CHILD_TEST(first_use)
{
    require(!slatei_arena_owned());
    slate_free(NULL);
    require(!slatei_arena_owned()); /* a free of nothing claims nothing */
    see_number((void *)100);
    require_equal(number_seen, 0);
    require_equal(arenas_used(), 1);
    require(slatei_arena_at(1) == NULL);
    require(slatei_arena_at(slatei_reserve.arenas - 1) == NULL);
}

/* One thread after another takes over the same arena, with what is in it. */
CHILD_TEST(parked_arenas_are_taken_over)
{
    see_number((void *)100);
    for (unsigned i = 0; i < 50; i++) {
        run_thread(see_number, (void *)(uintptr_t)(16 + i * 8));
        require_equal(number_seen, 1);
        require_equal(atomic_load(&slatei_arena_at(1)->state), SLATEI_ARENA_PARKED);
    }
    require_equal(arenas_used(), 2);
}

CHILD_TEST(adopted_for_a_moment)
{
    see_number((void *)100);
    run_thread(see_number, (void *)100);
    struct slatei_arena *parked = slatei_arena_at(1);
    require(!slatei_arena_adopt(slatei_arena_at(0))); /* it has an owner */
    require(slatei_arena_adopt(parked));
    require(!slatei_arena_adopt(parked));
    run_thread(see_number, (void *)100); /* meanwhile nobody else gets it */
    require_equal(number_seen, 2);
    slatei_arena_park(parked);
    require(slatei_arena_adopt(parked));
    slatei_arena_park(parked);
    run_thread(see_number, (void *)100);
    require_equal(number_seen, 1); /* the lowest */
}

/* ---- many threads */

static atomic_uint turns;

static void *short_life(void *seed)
{
    struct random random = {(uintptr_t)seed};
    void *block[20];
    size_t size[20];
    for (unsigned i = 0; i < 20; i++) {
        size[i] = skewed(&random, 12);
        require((block[i] = slate_alloc(size[i])) != NULL);
        fill(block[i], size[i], i);
    }
    for (unsigned i = 0; i < 20; i++) {
        require(holds(block[i], size[i], size[i], i));
        slate_free(block[i]);
    }
    atomic_fetch_add(&turns, 1);
    return NULL;
}

CHILD_TEST(threads_come_and_go)
{
    enum { AT_ONCE = 4 };
    unsigned rounds = slow_here() ? 50 : 2500;
    uint64_t seed = seed_of_run();
    size_t resident = 0;
    for (unsigned i = 0; i < rounds; i++) {
        pthread_t thread[AT_ONCE];
        for (unsigned j = 0; j < AT_ONCE; j++)
            require_equal(pthread_create(&thread[j], NULL, short_life,
                                         (void *)(uintptr_t)(seed + i * AT_ONCE + j)),
                          0);
        for (unsigned j = 0; j < AT_ONCE; j++)
            pthread_join(thread[j], NULL);
        if (i == rounds / 5)
            resident = status_bytes("RssAnon");
    }
    require_equal(turns, rounds * AT_ONCE);
    require_at_most(arenas_used(), AT_ONCE);
    if (!slow_here())
        require_at_most(status_bytes("RssAnon"), resident + 2 * MIB);
}

#define CROWD 12
#define CROWD_BLOCKS 300

static pthread_barrier_t barrier;
static struct {
    unsigned char *block[CROWD_BLOCKS];
    size_t size[CROWD_BLOCKS];
    unsigned number;
} member[CROWD];

/* All are there at once; then each ends the blocks of the next. */
static void *crowd(void *argument)
{
    uintptr_t me = (uintptr_t)argument;
    struct random random = {me + 1000};
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < CROWD_BLOCKS; i++) {
        member[me].size[i] = skewed(&random, 14);
        require((member[me].block[i] = slate_alloc(member[me].size[i])) != NULL);
        fill(member[me].block[i], member[me].size[i], me * CROWD_BLOCKS + i);
    }
    member[me].number = slatei_arena_owned() ? slate_self_->number : UINT32_MAX;
    pthread_barrier_wait(&barrier);
    uintptr_t next = (me + 1) % CROWD;
    for (unsigned i = 0; i < CROWD_BLOCKS; i++) {
        size_t size = member[next].size[i], grown = size + size / 2;
        require(holds(member[next].block[i], size, size, next * CROWD_BLOCKS + i));
        if (i % 2 != 0) {
            require((member[next].block[i] = slate_realloc(member[next].block[i], grown)) != NULL);
            require(holds(member[next].block[i], size, size, next * CROWD_BLOCKS + i));
        }
        slate_free(member[next].block[i]);
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* More threads than arenas: those beyond them share the last one. */
static void be_a_crowd(enum slatei_policy policy)
{
    enum { ARENAS = 4 };
    slatei_settings.arenas = ARENAS;
    slatei_settings.policy = policy;
    for (unsigned round = 0; round < 5; round++) {
        pthread_t thread[CROWD];
        pthread_barrier_init(&barrier, NULL, CROWD);
        for (uintptr_t i = 0; i < CROWD; i++)
            require_equal(pthread_create(&thread[i], NULL, crowd, (void *)i), 0);
        for (unsigned i = 0; i < CROWD; i++)
            pthread_join(thread[i], NULL);
        unsigned owners = 0;
        for (unsigned i = 0; i < CROWD; i++) {
            owners += member[i].number != UINT32_MAX;
            for (unsigned j = 0; j < i; j++)
                require(member[i].number == UINT32_MAX || member[i].number != member[j].number);
        }
        require_equal(owners, ARENAS - 1);
        require_equal(arenas_used(), ARENAS);
        require(slatei_arena_at(ARENAS - 1) != NULL);
    }
}

CHILD_TEST(more_threads_than_arenas) { be_a_crowd(SLATEI_SWITCH); }

CHILD_TEST(more_threads_than_arenas_shared) { be_a_crowd(SLATEI_SHARED); }

static sem_t has_own, has_shared, may_end, may_claim;

static void *hold(void *unused)
{
    require(slate_alloc(10) != NULL);
    require(slatei_arena_owned());
    sem_post(&has_own);
    sem_wait(&may_end);
    return unused;
}

static void *share_then_claim(void *unused)
{
    require(slate_alloc(10) != NULL);
    require(!slatei_arena_owned());
    sem_post(&has_shared);
    sem_wait(&may_claim);
    require(slate_alloc(10) != NULL);
    require(slatei_arena_owned());
    return unused;
}

/* A thread that had to share gets its own arena when one is parked. */
CHILD_TEST(sharing_ends)
{
    slatei_settings.arenas = 2; /* one to own */
    sem_t *all[] = {&has_own, &has_shared, &may_end, &may_claim};
    for (unsigned i = 0; i < 4; i++)
        sem_init(all[i], 0, 0);
    pthread_t first, second;
    require_equal(pthread_create(&first, NULL, hold, NULL), 0);
    sem_wait(&has_own);
    require_equal(pthread_create(&second, NULL, share_then_claim, NULL), 0);
    sem_wait(&has_shared);
    sem_post(&may_end);
    pthread_join(first, NULL);
    sem_post(&may_claim);
    pthread_join(second, NULL);
    require_equal(arenas_used(), 2);
}

/* ---- a thread's end */

static pthread_key_t late_key;
static atomic_uint late_calls;
static atomic_bool after_parking;

struct late {
    unsigned rounds;
    unsigned char *block;
};

/* Runs again and again, as long as it sets its key, and so after the arena was parked as well. */
static void late_destructor(void *value)
{
    struct late *late = value;
    atomic_fetch_add(&late_calls, 1);
    if (!slatei_arena_owned())
        atomic_store(&after_parking, true);
    require(holds(late->block, 200, 200, 7));
    unsigned char *grown = slate_realloc(late->block, 400);
    require(grown != NULL);
    require(holds(grown, 200, 200, 7));
    slate_free(grown);
    unsigned char *small = slate_zalloc(33), *large = slate_alloc(100000);
    require(small != NULL && large != NULL);
    require(all_zero(small, 33));
    memset(large, 1, 100000);
    require_at_least(slate_usable_size(small), 33);
    slate_free(small);
    slate_free(large);
    if (--late->rounds == 0) {
        slate_free(late);
        return;
    }
    require((late->block = slate_alloc(200)) != NULL);
    fill(late->block, 200, 7);
    pthread_setspecific(late_key, late);
}

static void *end_late(void *unused)
{
    struct late *late = slate_alloc(sizeof *late);
    require(late != NULL);
    late->rounds = 3;
    require((late->block = slate_alloc(200)) != NULL);
    fill(late->block, 200, 7);
    pthread_setspecific(late_key, late);
    return unused;
}

CHILD_TEST(destructors_after_parking)
{
    require(slate_alloc(1) != NULL); /* slate's key comes before */
    require_equal(pthread_key_create(&late_key, late_destructor), 0);
    for (unsigned i = 0; i < 20; i++)
        run_thread(end_late, NULL);
    require_equal(late_calls, 60);
    require(after_parking);
    /* The main thread's, a parked one, and the shared one that the late calls used. */
    require_at_most(arenas_used(), 3);
    slate_purge();
}

/* A thread whose first use of slate is in a destructor. */
static void *first_use_late(void *unused)
{
    pthread_setspecific(late_key, &late_calls);
    return unused;
}

static void use_first(void *value)
{
    atomic_fetch_add((atomic_uint *)value, 1);
    void *block = slate_alloc(77);
    require(block != NULL);
    slate_free(block);
}

CHILD_TEST(first_use_in_a_destructor)
{
    require_equal(pthread_key_create(&late_key, use_first), 0);
    for (unsigned i = 0; i < 50; i++)
        run_thread(first_use_late, NULL);
    require_equal(late_calls, 50);
    require_at_most(arenas_used(), 2);
}

/* ---- the stack of foreign frees */

#define PUSHERS 4
#define PUSHES 5000

static struct slate_block_ pushed[PUSHERS][PUSHES];
static struct slatei_arena *target;
static atomic_uint pushers_left;

static void *push(void *number)
{
    for (unsigned i = 0; i < PUSHES; i++)
        slatei_arena_push_foreign(target, &pushed[(uintptr_t)number][i]);
    atomic_fetch_sub(&pushers_left, 1);
    return NULL;
}

CHILD_TEST(foreign_stack)
{
    static struct slatei_arena arena;
    static bool seen[PUSHERS][PUSHES];
    target = &arena;
    require(slatei_arena_take_foreign(target) == NULL);
    for (unsigned i = 0; i < 3; i++)
        slatei_arena_push_foreign(target, &pushed[0][i]);
    struct slate_block_ *taken = slatei_arena_take_foreign(target);
    require(taken == &pushed[0][2] && taken->next == &pushed[0][1]);
    require(taken->next->next == &pushed[0][0] && taken->next->next->next == NULL);
    require(slatei_arena_take_foreign(target) == NULL);

    pthread_t thread[PUSHERS];
    pushers_left = PUSHERS;
    for (uintptr_t i = 0; i < PUSHERS; i++)
        require_equal(pthread_create(&thread[i], NULL, push, (void *)i), 0);
    size_t count = 0;
    for (bool last = false;; sched_yield()) {
        last = atomic_load(&pushers_left) == 0;
        for (taken = slatei_arena_take_foreign(target); taken != NULL; taken = taken->next) {
            size_t index = (size_t)(taken - &pushed[0][0]);
            require(index < PUSHERS * PUSHES);
            require(!seen[index / PUSHES][index % PUSHES]);
            seen[index / PUSHES][index % PUSHES] = true;
            count++;
        }
        if (last)
            break;
    }
    require_equal(count, PUSHERS * PUSHES);
    for (unsigned i = 0; i < PUSHERS; i++)
        pthread_join(thread[i], NULL);
}

/* What is freed by others into a parked arena is not lost for ever. */
#define GIVEN 20000

static void *given[GIVEN];

static void *make_given(void *unused)
{
    for (unsigned i = 0; i < GIVEN; i++)
        require((given[i] = slate_alloc(64)) != NULL);
    return unused;
}

CHILD_TEST(frees_into_a_parked_arena)
{
    slatei_settings.policy = SLATEI_SHARED;
    require(slate_alloc(1) != NULL);
    run_thread(make_given, NULL);
    for (unsigned i = 0; i < GIVEN; i++)
        slate_free(given[i]);
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_at_most(stats.in_use, GIVEN * 64 / 4); /* most of it was taken in on the way */
    slate_purge();
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_at_most(stats.in_use, 16);
}

/* ---- fork */

#define STEADY 500

static unsigned char *steady[STEADY];
static size_t steady_size[STEADY];
static atomic_bool ready_to_fork, stop;

/* Has blocks that stay and churns others, so that the fork meets it anywhere. */
static void *churn(void *unused)
{
    struct random random = {77};
    for (unsigned i = 0; i < STEADY; i++) {
        steady_size[i] = 16 + skewed(&random, 13);
        require((steady[i] = slate_alloc(steady_size[i])) != NULL);
        fill(steady[i], steady_size[i], i);
    }
    atomic_store(&ready_to_fork, true);
    enum { SLOTS = 200 };
    void *slot[SLOTS] = {NULL};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t k = below(&random, SLOTS);
        slate_free(slot[k]);
        require((slot[k] = slate_alloc(skewed(&random, 15))) != NULL);
    }
    for (unsigned k = 0; k < SLOTS; k++)
        slate_free(slot[k]);
    return unused;
}

static void *use_orphan(void *unused)
{
    struct random random = {99};
    unsigned char *block[400];
    size_t size[400];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 400; i++) {
            size[i] = 16 + skewed(&random, 13);
            require((block[i] = slate_zalloc(size[i])) != NULL);
            require(all_zero(block[i], size[i]));
            fill(block[i], size[i], i + round);
        }
        for (unsigned i = 0; i < 400; i++) {
            require(holds(block[i], size[i], size[i], i + round));
            slate_free(block[i]);
        }
    }
    return unused;
}

static void check_forked(unsigned char *mine)
{
    require(holds(mine, 1000, 1000, 5));
    unsigned orphans = 0;
    for (size_t i = 0; i < slatei_reserve.arenas; i++) {
        struct slatei_arena *arena = slatei_arena_at(i);
        orphans += arena != NULL && atomic_load(&arena->state) == SLATEI_ARENA_ORPHANED;
    }
    require_equal(orphans, 1);
#if !defined(__SANITIZE_THREAD__)
    size_t used = arenas_used();
    for (unsigned i = 0; i < 3; i++)
        run_thread(use_orphan, NULL);
    require_equal(arenas_used(), used); /* the orphan has a new owner */
#endif
    use_orphan(NULL);
    for (unsigned i = 0; i < STEADY; i++) {
        require(holds(steady[i], steady_size[i], steady_size[i], i));
        slate_free(steady[i]);
    }
    slate_free(mine);
    slate_purge();
    use_orphan(NULL);
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        require_equal(stats.classes[i].units, stats.classes[i].in_use + stats.classes[i].free_list +
                                                  stats.classes[i].free_unit +
                                                  stats.classes[i].tails);
}

static void fork_often(enum slatei_policy policy)
{
    slatei_settings.policy = policy;
    unsigned char *mine = slate_alloc(1000);
    require(mine != NULL);
    fill(mine, 1000, 5);
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, churn, NULL), 0);
    while (!atomic_load(&ready_to_fork))
        sched_yield();
    for (unsigned i = 0; i < (slow_here() ? 5u : 50u); i++) {
        pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            alarm(30);
            check_forked(mine);
            _exit(0);
        }
        int status;
        require_equal(waitpid(child, &status, 0), child);
        require_equal(status, 0);
        require(holds(mine, 1000, 1000, 5));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

CHILD_TEST(fork_in_slices) { fork_often(SLATEI_SWITCH); }

CHILD_TEST(fork_in_the_pool) { fork_often(SLATEI_SHARED); }

/* Before the first use, and of a program with one thread. */
CHILD_TEST(plain_forks)
{
    for (unsigned i = 0; i < 3; i++) {
        void *block = i == 0 ? NULL : slate_alloc(100);
        pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            slate_free(block);
            use_orphan(NULL);
            require_equal(arenas_used(), 1);
            _exit(0);
        }
        int status;
        require_equal(waitpid(child, &status, 0), child);
        require_equal(status, 0);
        slate_free(block);
    }
}

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, first_use);
    tcase_add_test(tests, parked_arenas_are_taken_over);
    tcase_add_test(tests, adopted_for_a_moment);
    tcase_add_test(tests, threads_come_and_go);
    tcase_add_test(tests, more_threads_than_arenas);
    tcase_add_test(tests, more_threads_than_arenas_shared);
    tcase_add_test(tests, sharing_ends);
    tcase_add_test(tests, destructors_after_parking);
    tcase_add_test(tests, first_use_in_a_destructor);
    tcase_add_test(tests, foreign_stack);
    tcase_add_test(tests, frees_into_a_parked_arena);
    tcase_add_test(tests, fork_in_slices);
    tcase_add_test(tests, fork_in_the_pool);
    tcase_add_test(tests, plain_forks);
    return run_suite(suite);
}
