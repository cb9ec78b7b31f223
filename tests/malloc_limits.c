/* tests/malloc_limits.c - little memory, core dumps, locked memory: on whatever malloc the process
 * has.
 *
 * SPDX-License-Identifier: MIT
 *
 * usage: malloc_limits CASE
 */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define GIB ((size_t)1 << 30)

struct chain {
    struct chain *next;
    size_t size;
};

/* Takes blocks of that size until there are no more, at most `most` bytes; gives back what it took.
 */
static size_t exhaust(size_t size, size_t most)
{
    struct chain *chain = NULL;
    size_t taken = 0;
    while (taken < most) {
        errno = 0;
        struct chain *block = malloc(size);
        if (block == NULL) {
            REQUIRE(errno == ENOMEM, "malloc(%zu) fails with errno %d", size, errno);
            break;
        }
        block->next = chain;
        block->size = size;
        ((char *)block)[size - 1] = 1;
        chain = block;
        taken += size;
    }
    while (chain != NULL) {
        struct chain *next = chain->next;
        REQUIRE(chain->size == size, "a block of %zu bytes was overwritten", size);
        free(chain);
        chain = next;
    }
    return taken;
}

static void *thread_body(void *argument)
{
    char *block = malloc(1000);
    if (block != NULL)
        memset(block, 1, 1000);
    free(block);
    return argument;
}

/* To the limit and back, again and again: what was freed can be had again, in other sizes too. */
static void exhausted(void)
{
    static const size_t sizes[] = {200, 16384, 40000, 20000000};
    size_t most = (size_t)6 << 30, first = 0;
    struct rlimit limit;
    /* Memory that slate has made usable counts against RLIMIT_DATA while it is free as well, and so
     * do stacks. */
    bool threads = getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
    char *kept = malloc(1000);
    REQUIRE(kept != NULL, "there is no memory at all");
    memset(kept, 9, 1000);
    /* Once where there is much. */
    unsigned rounds = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur / 2 >= GIB ? 1 : 2;
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned i = rounds == 1 ? 1 : 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t taken = exhaust(sizes[i], most);
            REQUIRE(taken < most, "the limit does not limit");
            if (first == 0)
                first = taken;
            REQUIRE(taken >= first / 4, "blocks of %zu bytes: %zu KiB, where there were %zu once",
                    sizes[i], taken >> 10, first >> 10);
            /* The program goes on. */
            pthread_t thread;
            if (threads) {
                REQUIRE(pthread_create(&thread, NULL, thread_body, NULL) == 0,
                        "no thread can be made after %zu", sizes[i]);
                pthread_join(thread, NULL);
            }
            FILE *file = fopen("/dev/null", "we");
            REQUIRE(file != NULL, "fopen fails after %zu", sizes[i]);
            fclose(file);
        }
    for (unsigned i = 0; i < 1000; i++)
        REQUIRE(kept[i] == 9, "a block was overwritten");
    free(kept);
    printf("%zu\n", first >> 20);
}

/* Takes what a control group gives, in blocks that are touched: the kernel ends the process or the
 * group's limit is not there.  Stays well below it and sees that memory comes back. */
static void below_limit(void)
{
    for (unsigned round = 0; round < 20; round++) {
        char *blocks[40];
        for (unsigned i = 0; i < 40; i++) {
            blocks[i] = malloc(MIB);
            REQUIRE(blocks[i] != NULL, "no memory");
            memset(blocks[i], 1, MIB);
        }
        for (unsigned i = 0; i < 40; i++)
            free(blocks[i]);
    }
    puts("done");
}

static size_t status_number(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    size_t number = 0, length = strlen(name);
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, length) == 0)
            number = strtoul(line + length + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return number << 10;
}

/* Locked memory is brought in at once: only what is in use may be. */
static void locked(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() != 0 && limit.rlim_cur < 1 << 30)) {
        puts("too little memory may be locked here");
        exit(TEST_SKIPPED);
    }
    char *before = malloc(100);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        printf("mlockall: %s\n", strerror(errno));
        exit(TEST_SKIPPED);
    }
    enum { BLOCKS = 2000 };
    static char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i * 10);
        REQUIRE(blocks[i] != NULL, "no memory once it is locked");
        memset(blocks[i], 1, i * 10);
    }
    size_t resident = test_resident();
    REQUIRE(resident < 256 * MIB, "%zu MiB are in memory for 10 MB of blocks", resident >> 20);
    REQUIRE(status_number("VmLck:") > MIB, "nothing is locked");
    for (unsigned i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(before);
}

/* Prints the memory in use in KiB, waits for a signal or aborts. */
static void hold(bool dies)
{
    enum { BLOCKS = 20000 };
    for (unsigned i = 0; i < BLOCKS; i++) {
        char *volatile block = malloc(1000);
        REQUIRE(block != NULL, "no memory");
        memset(block, 1, 1000);
    }
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    printf("%zu\n", test_resident() >> 10);
    fflush(stdout);
    if (dies)
        abort();
    for (;;)
        pause();
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "exhausted") == 0)
        exhausted();
    else if (count == 2 && strcmp(words[1], "below_limit") == 0)
        below_limit();
    else if (count == 2 && strcmp(words[1], "locked") == 0)
        locked();
    else if (count == 2 && strcmp(words[1], "abort") == 0)
        hold(true);
    else if (count == 2 && strcmp(words[1], "wait") == 0)
        hold(false);
    else
        return TEST_USAGE;
    return 0;
}
