/* tests/malloc_threads.c - threads on whatever malloc the process has: many at once, many one after
 * another, one that only frees, what runs as threads and the process end.
 *
 * SPDX-License-Identifier: MIT
 *
 * usage: malloc_threads CASE
 */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

static void *volatile kept;

static void start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, body, argument);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
}

/* ---- at once: more threads than there are arenas */

enum { AT_ONCE = 1000, BLOCKS = 100 };

static pthread_barrier_t all_there;

static void *one_of_many(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    unsigned char *blocks[BLOCKS];
    uint64_t state = number;
    pthread_barrier_wait(&all_there);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            size_t size = 1 + random_below(&state, 2000);
            blocks[i] = malloc(size);
            REQUIRE(blocks[i] != NULL, "malloc(%zu) fails in thread %zu", size, (size_t)number);
            memset(blocks[i], (int)number, size);
            blocks[i][0] = (unsigned char)i;
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            REQUIRE(blocks[i][0] == (unsigned char)i, "thread %zu: a block was overwritten",
                    (size_t)number);
            free(blocks[i]);
        }
    }
    pthread_barrier_wait(&all_there);
    return NULL;
}

static void at_once(void)
{
    static pthread_t threads[AT_ONCE];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&all_there, NULL, AT_ONCE);
    for (uintptr_t i = 0; i < AT_ONCE; i++) {
        int error = pthread_create(&threads[i], &small, one_of_many, (void *)i);
        REQUIRE(error == 0, "pthread_create, thread %zu: %s", (size_t)i, strerror(error));
    }
    for (unsigned i = 0; i < AT_ONCE; i++)
        pthread_join(threads[i], NULL);
}

/* ---- one after another: what a thread leaves is used by the next */

static void *short_life(void *argument)
{
    char *blocks[20];
    (void)argument;
    for (unsigned i = 0; i < 20; i++) {
        blocks[i] = malloc(i * 100 + 10);
        REQUIRE(blocks[i] != NULL, "malloc fails");
        memset(blocks[i], 1, i * 100 + 10);
    }
    for (unsigned i = 0; i < 20; i++)
        free(blocks[i]);
    return NULL;
}

static void in_turn(void)
{
    unsigned long threads = scaled(100000);
    size_t early = 0;
    for (unsigned long i = 0; i < threads; i++) {
        pthread_t thread;
        start(&thread, short_life, NULL);
        pthread_join(thread, NULL);
        if (i == threads / 100)
            early = test_resident();
    }
    size_t now = test_resident();
    REQUIRE(now <= early + 2 * MIB, "%lu threads made %zu KiB of memory %zu KiB", threads,
            early >> 10, now >> 10);
}

/* ---- a thread that only frees */

enum { SLOTS = 4096, HANDED = 400000 };

static _Atomic(char *) slots[SLOTS];

static void *only_free(void *argument)
{
    unsigned long *left = argument;
    for (unsigned at = 0; *left > 0; at = (at + 1) % SLOTS) {
        char *block = atomic_exchange_explicit(&slots[at], NULL, memory_order_acquire);
        if (block == NULL)
            continue;
        REQUIRE(block[0] == 7, "a block was overwritten on its way");
        free(block);
        --*left;
    }
    return NULL;
}

static void freer(void)
{
    pthread_t thread;
    unsigned long handed = scaled(HANDED), left = handed;
    uint64_t state = 1;
    size_t early = 0;
    start(&thread, only_free, &left);
    for (unsigned long i = 0; i < handed;) {
        unsigned at = (unsigned)random_below(&state, SLOTS);
        if (atomic_load_explicit(&slots[at], memory_order_relaxed) != NULL) {
            if (i % 64 == 0)
                sched_yield();
            at = (at + 1) % SLOTS;
            if (atomic_load_explicit(&slots[at], memory_order_relaxed) != NULL)
                continue;
        }
        size_t size = i % 1000 == 0 ? 100000 : 16 + i % 500;
        char *block = malloc(size);
        REQUIRE(block != NULL, "malloc fails");
        block[0] = 7;
        atomic_store_explicit(&slots[at], block, memory_order_release);
        i++;
        if (i == handed / 20)
            early = test_resident();
    }
    pthread_join(thread, NULL);
    size_t now = test_resident();
    /* At most SLOTS blocks of half a KiB live at a time. */
    REQUIRE(now <= early + 16 * MIB, "%lu blocks freed elsewhere made %zu KiB of memory %zu KiB",
            handed, early >> 10, now >> 10);
}

/* The same where the threads that allocated are gone: nobody else would take their blocks back. */
static void *make_and_go(void *argument)
{
    char **blocks = argument;
    for (unsigned i = 0; i < 1000; i++) {
        blocks[i] = malloc(200);
        memset(blocks[i], 1, 200);
    }
    return NULL;
}

static void freer_of_the_gone(void)
{
    static char *blocks[1000];
    size_t early = 0;
    for (unsigned round = 0; round < 400; round++) {
        pthread_t thread;
        start(&thread, make_and_go, blocks);
        pthread_join(thread, NULL);
        for (unsigned i = 0; i < 1000; i++)
            free(blocks[i]);
        if (round == 20)
            early = test_resident();
    }
    size_t now = test_resident();
    REQUIRE(now <= early + 4 * MIB, "blocks of ended threads made %zu KiB of memory %zu KiB",
            early >> 10, now >> 10);
}

/* ---- ends of threads: destructors that allocate and free, before and after slate's own */

enum { KEYS = 40 };

static pthread_key_t keys[KEYS];
static atomic_uint destroyed;

static void destroy(void *value)
{
    char *block = value, *other = malloc(1000);
    REQUIRE(other != NULL, "malloc fails in a destructor");
    memset(other, 3, 1000);
    REQUIRE(block[9] == 5, "a thread's value was overwritten before its end");
    free(block);
    void *volatile unused = calloc(10, 10);
    free(unused);
    free(realloc(other, 30000));
    atomic_fetch_add(&destroyed, 1);
}

/* Comes back until there are no more rounds. */
static pthread_key_t again;

static void destroy_again(void *value)
{
    free(value);
    pthread_setspecific(again, malloc(77));
}

static void *with_values(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < KEYS; i++) {
        char *block = malloc(100 + i);
        block[9] = 5;
        pthread_setspecific(keys[i], block);
    }
    pthread_setspecific(again, malloc(77));
    return NULL;
}

static void *in_turn_with_values(void *argument)
{
    for (unsigned i = 0; i < 20; i++) {
        pthread_t thread;
        start(&thread, with_values, argument);
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void last_words(void)
{
    char *block = malloc(5000);
    REQUIRE(block != NULL, "malloc fails in an atexit handler");
    memset(block, 1, 5000);
    free(block);
    free(kept);
}

static __attribute__((destructor)) void library_end(void)
{
    char *block = calloc(3, 3000);
    if (block == NULL || block[8999] != 0)
        _exit(4);
    free(block);
}

static void ends(void)
{
    /* Half of the keys are made before the heap has its own, half after. */
    for (unsigned i = 0; i < KEYS / 2; i++)
        REQUIRE(pthread_key_create(&keys[i], destroy) == 0, "pthread_key_create fails");
    kept = malloc(10);
    for (unsigned i = KEYS / 2; i < KEYS; i++)
        REQUIRE(pthread_key_create(&keys[i], destroy) == 0, "pthread_key_create fails");
    REQUIRE(pthread_key_create(&again, destroy_again) == 0, "pthread_key_create fails");
    atexit(last_words);
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        start(&threads[i], in_turn_with_values, NULL);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    REQUIRE(destroyed == 4 * 20 * KEYS, "%u of %u destructors ran", destroyed, 4 * 20 * KEYS);
}

/* The main thread ends before the others. */
static void *outlives(void *argument)
{
    pthread_join(*(pthread_t *)argument, NULL);
    for (unsigned i = 0; i < 1000; i++)
        free(malloc(i * 10));
    exit(0);
}

static void main_ends(void)
{
    static pthread_t self, other;
    self = pthread_self();
    kept = malloc(100);
    start(&other, outlives, &self);
    pthread_exit(NULL);
}

/* ---- dlclose of a library whose threads live on, and of the malloc itself */

static void closed_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    REQUIRE(library != NULL, "dlopen: %s", dlerror());
    int (*begin)(void);
    *(void **)&begin = dlsym(library, "plugin_begin");
    void (*end)(void);
    *(void **)&end = dlsym(library, "plugin_end");
    REQUIRE(begin != NULL && end != NULL, "dlsym: %s", dlerror());
    REQUIRE(begin() == 0, "the library's threads do not start");
    dlclose(library);
    for (unsigned i = 0; i < 10000; i++)
        free(malloc(i));
    end(); /* the threads' code is there still: the library holds itself */
}

/* A malloc that is loaded, used by threads of its own and closed; its threads end after that. */
static void *(*loaded_malloc)(size_t);
static void (*loaded_free)(void *);
static pthread_barrier_t closed;

static void *use_loaded(void *argument)
{
    (void)argument;
    char *block = loaded_malloc(100);
    REQUIRE(block != NULL, "the loaded malloc fails");
    block[99] = 1;
    loaded_free(block);
    pthread_barrier_wait(&closed);
    pthread_barrier_wait(&closed);
    return NULL; /* here its destructor parks the thread's arena */
}

static void closed_malloc(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL, "dlopen: %s", dlerror());
    *(void **)&loaded_malloc = dlsym(library, "malloc");
    *(void **)&loaded_free = dlsym(library, "free");
    REQUIRE(loaded_malloc != malloc, "that is this process's malloc");
    pthread_t thread;
    pthread_barrier_init(&closed, NULL, 2);
    start(&thread, use_loaded, NULL);
    pthread_barrier_wait(&closed);
    dlclose(library);
    pthread_barrier_wait(&closed);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 100; i++) {
        start(&thread, short_life, NULL);
        pthread_join(thread, NULL);
    }
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"at_once", at_once}, {"in_turn", in_turn},     {"freer", freer},
        {"ends", ends},       {"main_ends", main_ends}, {"freer_of_the_gone", freer_of_the_gone},
    };
    if (count == 3 && strcmp(words[1], "closed_library") == 0) {
        closed_library(words[2]);
        return 0;
    }
    if (count == 3 && strcmp(words[1], "closed_malloc") == 0) {
        closed_malloc(words[2]);
        return 0;
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (count == 2 && strcmp(words[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "malloc_threads: unknown case\n");
    return TEST_USAGE;
}
