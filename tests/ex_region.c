/* ex_region.c - a phase of a compiler: its tree in a region, a try that is taken back, its output
 * in a buffer, its working memory in scratch.
 *
 * SPDX-License-Identifier: MIT
 */
#include <slate.h>

#include <stdio.h>
#include <string.h>

struct node {
    struct node *left, *right;
    const char *name;
};

static struct node *new_node(struct slate_region *region, const char *name)
{
    struct node *node = slate_region_new(region, struct node);
    if (node != NULL)
        *node = (struct node){NULL, NULL, slate_region_strdup(region, name)};
    return node;
}

/* Right: what the try made is used before the rewind; what is kept is older than the mark.  Wrong
 * would be to return `tried`, or to use `name` after the rewind: both have ended then, and
 * AddressSanitizer says so. */
static size_t try_a_parse(struct slate_region *region, unsigned number)
{
    struct slate_region_mark mark = slate_region_mark(region);
    char *name = slate_region_printf(region, "try.%u", number);
    struct node *tried = name != NULL ? new_node(region, name) : NULL;
    size_t length = tried != NULL ? strlen(tried->name) : 0;
    slate_region_rewind(region, mark);
    return length;
}

static int print(const struct node *node, struct slate_buffer *out)
{
    if (node == NULL)
        return 0;
    return print(node->left, out) != 0 || slate_buffer_printf(out, "%s ", node->name) != 0 ||
           print(node->right, out) != 0;
}

int main(void)
{
    struct slate_region *region = slate_region_create();
    if (region == NULL)
        return 1;
    struct node *root = new_node(region, "b");
    if (root == NULL)
        return 1;
    root->left = new_node(region, "a");
    root->right = new_node(region, "c");
    for (unsigned i = 0; i < 1000; i++)
        if (try_a_parse(region, i) < 5)
            return 1;

    struct slate_buffer out;
    slate_buffer_init(&out, region);
    if (print(root, &out) != 0 || slate_buffer_append_byte(&out, '\n') != 0)
        return 1;

    if (slate_scratch_begin() != 0)
        return 1;
    char *copy = slate_scratch_alloc(slate_buffer_length(&out));
    if (copy == NULL)
        return 1;
    memcpy(copy, slate_buffer_data(&out), slate_buffer_length(&out));
    fwrite(copy, 1, slate_buffer_length(&out), stdout);
    int same = memcmp(copy, "a b c \n", 7);
    slate_scratch_end();

    slate_region_destroy(region); /* the tree, its names and the buffer's bytes end */
    slate_thread_idle();
    return same == 0 ? 0 : 1;
}
