/* ex_threads.c - threads hand blocks over: a parser makes trees, a printer ends them.
 *
 * SPDX-License-Identifier: MIT
 *
 * Any thread may end any block.  A thread that ends leaves its arena, with all blocks in it, to a
 * later one.
 */
#include <slate.h>

#include <pthread.h>
#include <stdio.h>

struct tree {
    struct tree *left, *right;
    unsigned value;
};

static struct tree *parse(unsigned depth)
{
    struct tree *made = slate_zalloc(sizeof *made);
    if (made == NULL || depth == 0)
        return made;
    made->value = depth;
    made->left = parse(depth - 1);
    made->right = parse(depth - 1);
    return made;
}

static void *parser(void *argument)
{
    (void)argument;
    return parse(12);
}

static unsigned long sum_and_end(struct tree *tree)
{
    if (tree == NULL)
        return 0;
    unsigned long sum = tree->value + sum_and_end(tree->left) + sum_and_end(tree->right);
    slate_free_sized(tree, sizeof *tree);
    return sum;
}

int main(void)
{
    for (unsigned file = 0; file < 4; file++) {
        pthread_t thread;
        void *tree;
        if (pthread_create(&thread, NULL, parser, NULL) != 0 || pthread_join(thread, &tree) != 0)
            return 1;
        unsigned long sum = sum_and_end(tree);
        printf("file %u: %lu\n", file, sum);
        /* 12 at the root, twice 11 below it, and so on. */
        if (sum != 8178)
            return 1;
    }
    struct slate_stats stats;
    slate_purge();
    slate_stats(&stats, sizeof stats);
    printf("%zu bytes in use, %zu arenas\n", stats.in_use, stats.arenas);
    return stats.in_use == 0 ? 0 : 1;
}
