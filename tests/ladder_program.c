/* ladder_program.c - uses all of the interface within whatever memory there is; ladder.sh and
 * tunables.sh run it.
 *
 * SPDX-License-Identifier: MIT
 *
 * With --short it leaves out what takes much memory.  Exit 0: everything worked; 3: the first
 * allocation already failed, cleanly.  Prints what slate_stats says was reserved, in MiB.
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>

enum { BLOCKS = 2000, NO_MEMORY = 3 };

static void *use_heap(void *argument)
{
    uint64_t state = *(uint64_t *)argument;
    struct tagged **blocks = slate_zalloc(BLOCKS * sizeof *blocks);
    REQUIRE(blocks != NULL, "slate_zalloc failed");
    for (unsigned i = 0; i < 4 * BLOCKS; i++) {
        struct tagged **block = &blocks[random_below(&state, BLOCKS)];
        size_t size = random_below(&state, 16) == 0 ? random_doubling(&state, 9, 17)
                                                    : random_below(&state, 512);
        if (*block == NULL) {
            *block = tagged_make(&state, size);
        } else if (random_below(&state, 3) == 0) {
            *block = tagged_resize(&state, *block, size);
        } else {
            tagged_end(*block);
            *block = NULL;
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        tagged_end(blocks[i]);
    slate_free(blocks);
    return NULL;
}

/* Takes blocks of `size` bytes until there are no more, which must be said cleanly, and gives them
 * back.  At most 128 MiB. */
static size_t exhaust(size_t size)
{
    void **newest = NULL;
    size_t count = 0;
    for (; count < 128 * MIB / size; count++) {
        errno = 0;
        void **block = slate_alloc(size);
        REQUIRE((block == NULL) == (errno == ENOMEM) && (block != NULL || errno != 0),
                "slate_alloc(%zu) gave %p with errno %d", size, (void *)block, errno);
        if (block == NULL)
            break;
        *block = newest;
        newest = block;
    }
    while (newest != NULL) {
        void **next = *newest;
        slate_free(newest);
        newest = next;
    }
    return count;
}

int main(int argc, char **argv)
{
    bool in_short = argc == 2 && strcmp(argv[1], "--short") == 0;
    if (argc != 1 && !in_short) {
        fputs("usage: ladder_program [--short]\n", stderr);
        return TEST_USAGE;
    }
    uint64_t seeds[2] = {1, 2};
    void *first = slate_alloc(1);
    if (first == NULL) {
        REQUIRE(errno == ENOMEM, "the first allocation failed with errno %d", errno);
        REQUIRE(slate_zalloc(100) == NULL && slate_alloc(100000) == NULL,
                "an allocation succeeded after the first had failed");
        slate_free(NULL);
        return NO_MEMORY;
    }
    slate_free(first);
    use_heap(&seeds[0]);
    if (in_short)
        return 0;
    /* A thread's stack may be more than the limit leaves. */
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    int error = pthread_create(&thread, &attributes, use_heap, &seeds[1]);
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
    pthread_join(thread, NULL);
    size_t large = exhaust(MIB), small = exhaust(48);
    REQUIRE(large > 0 && small > 0, "there is memory for %zu large and %zu small blocks", large,
            small);
    /* The heap is whole after memory ran out, and what was free again can be had again. */
    use_heap(&seeds[0]);
    REQUIRE(exhaust(MIB) > large / 2, "memory that was given back is gone");
    struct slate_stats stats = test_stats();
    REQUIRE(stats.committed <= stats.reserved, "slate_stats: more committed than reserved");
    printf("%zu\n", stats.reserved >> 20);
    return 0;
}
