/* tests/malloc_fork.c - forks of a process whose threads allocate, on whatever malloc it has.
 *
 * SPDX-License-Identifier: MIT
 *
 * usage: malloc_fork CASE
 */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <time.h>

static void *volatile kept;
static atomic_bool stop;
static atomic_ulong rounds;

static void use_heap(uint64_t seed, unsigned blocks)
{
    uint64_t state = seed;
    char *block[64] = {NULL};
    for (unsigned i = 0; i < blocks; i++) {
        unsigned at = (unsigned)random_below(&state, 64);
        size_t size = random_size(&state);
        free(block[at]);
        block[at] = random_below(&state, 4) == 0 ? calloc(1, size) : malloc(size);
        REQUIRE(block[at] != NULL, "no memory for %zu bytes", size);
        if (size > 0)
            block[at][0] = block[at][size - 1] = 1;
    }
    for (unsigned i = 0; i < 64; i++)
        free(block[i]);
}

static void *load(void *argument)
{
    for (uint64_t i = (uint64_t)(uintptr_t)argument; !atomic_load(&stop); i += 1000) {
        use_heap(i, 500);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void *use_in_thread(void *argument)
{
    use_heap((uint64_t)(uintptr_t)argument, 200);
    return NULL;
}

enum { LOADERS = 3, FORKS = 1000 };

static pthread_t loaders[LOADERS];

static void begin_load(void)
{
    for (uintptr_t i = 0; i < LOADERS; i++)
        REQUIRE(pthread_create(&loaders[i], NULL, load, (void *)i) == 0, "pthread_create fails");
    while (atomic_load(&rounds) < LOADERS)
        sched_yield();
}

static void end_load(void)
{
    atomic_store(&stop, true);
    for (unsigned i = 0; i < LOADERS; i++)
        pthread_join(loaders[i], NULL);
}

static void wait_for(pid_t child, const char *what)
{
    REQUIRE(child > 0, "%s fails", what);
    REQUIRE(test_child_passed(child, what), "%s", what);
}

static void forks(void)
{
    begin_load();
    for (unsigned long i = 0; i < scaled(FORKS); i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            use_heap(i, 100);
            if (i % 50 == 0) {
                pthread_t thread;
                pid_t second = fork();
                if (second == 0) {
                    use_heap(i, 100);
                    _exit(0);
                }
                wait_for(second, "fork in a child");
                REQUIRE(pthread_create(&thread, NULL, use_in_thread, (void *)i) == 0,
                        "pthread_create fails in a child");
                pthread_join(thread, NULL);
            }
            _exit(0);
        }
        wait_for(child, "fork");
        kept = malloc(i);
        free(kept);
    }
    end_load();
}

/* A thread that frees other threads' blocks alone, and never had an arena, is caught by a fork as
 * well. */
static _Atomic(char *) box[64];

static void *free_large(void *argument)
{
    (void)argument;
    for (unsigned i = 0; !atomic_load(&stop); i++)
        free(atomic_exchange(&box[i % 64], NULL));
    return NULL;
}

static void forks_beside_a_freer(void)
{
    pthread_t freer;
    kept = malloc(1); /* this thread has the heap to itself so far */
    REQUIRE(pthread_create(&freer, NULL, free_large, NULL) == 0, "pthread_create fails");
    for (unsigned long i = 0; i < scaled(FORKS / 8); i++) {
        for (unsigned at = 0; at < 64; at++)
            free(atomic_exchange(&box[at], malloc(at % 2 ? 100 : 100000)));
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            use_heap(i, 200);
            _exit(0);
        }
        wait_for(child, "fork");
    }
    atomic_store(&stop, true);
    pthread_join(freer, NULL);
}

/* Other libraries' handlers, registered before the heap has its own: they run while it is locked.
 */
static unsigned handled;

static void handle(void)
{
    static const size_t sizes[] = {1, 600, 20000, 100000, 3000000};
    for (unsigned i = 0; i < 5; i++) {
        char *block = calloc(1, sizes[i]);
        REQUIRE(block != NULL, "no memory in a fork handler");
        block = realloc(block, sizes[i] * 2);
        REQUIRE(block != NULL, "no memory in a fork handler");
        free(block);
    }
    handled++;
}

static void handlers(void)
{
    REQUIRE(pthread_atfork(handle, handle, handle) == 0, "pthread_atfork fails");
    begin_load();
    REQUIRE(pthread_atfork(handle, handle, handle) == 0, "pthread_atfork fails");
    for (unsigned long i = 0; i < scaled(FORKS / 20); i++) {
        handled = 0;
        pid_t child = fork();
        if (child == 0) {
            REQUIRE(handled == 4, "%u handlers ran in the child", handled);
            alarm(60);
            use_heap(i, 100);
            _exit(0);
        }
        REQUIRE(handled == 4, "%u handlers ran in the parent", handled);
        wait_for(child, "fork");
    }
    end_load();
}

extern char **environ;

static void spawns(void)
{
    begin_load();
    for (unsigned long i = 0; i < scaled(FORKS / 20); i++) {
        char *command[] = {"/bin/sh", "-c", "x=$(echo one two); test \"$x\" = 'one two'", NULL};
        pid_t child;
        REQUIRE(posix_spawn(&child, command[0], NULL, NULL, command, environ) == 0,
                "posix_spawn fails");
        wait_for(child, "posix_spawn");
        child = vfork();
        if (child == 0) {
            kept = malloc(100); /* not allowed, but done: the parent waits */
            free(kept);
            execv(command[0], command);
            _exit(9);
        }
        wait_for(child, "vfork and exec");
        REQUIRE(system("exit 0") == 0, "system fails");
        FILE *pipe = popen("echo ten", "r");
        char text[16] = "";
        REQUIRE(pipe != NULL && fgets(text, sizeof text, pipe) != NULL &&
                    strcmp(text, "ten\n") == 0,
                "popen gives \"%s\"", text);
        pclose(pipe);
    }
    end_load();
}

/* Prints how many nanoseconds fork and exec take with that much memory in use: the least of some
 * tries. */
static void cost(void)
{
    enum { PART = 64 << 10, TRIES = 15 };
    for (size_t i = 0; i < ((size_t)1 << 30) / PART; i++) {
        char *block = malloc(PART);
        REQUIRE(block != NULL, "no memory");
        memset(block, 1, PART);
        *(void *volatile *)(void *)block = kept;
        kept = block;
    }
    long least = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(9);
        }
        wait_for(child, "fork and exec");
        clock_gettime(CLOCK_MONOTONIC, &to);
        long taken = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
        least = least == 0 || taken < least ? taken : least;
    }
    /* How much of it is due to page tables, which is what a fork copies. */
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long tables = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmPTE: %lu kB", &tables) == 1)
            break;
    printf("%lu %ld\n", tables, least);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"forks", forks},
                 {"forks_beside_a_freer", forks_beside_a_freer},
                 {"handlers", handlers},
                 {"spawns", spawns},
                 {"cost", cost}};
    alarm(240);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (count == 2 && strcmp(words[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "malloc_fork: unknown case\n");
    return TEST_USAGE;
}
