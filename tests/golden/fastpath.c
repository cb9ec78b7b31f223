/* fastpath.c - what tests/golden.sh compiles to count the instructions of the inline fast paths.
 *
 * SPDX-License-Identifier: MIT
 */
#include <slate.h>

void *alloc48(void);
void free_block(void *block);
size_t usable_size(const void *block);

void *alloc48(void) { return slate_alloc(48); }

void free_block(void *block) { slate_free(block); }

size_t usable_size(const void *block) { return slate_usable_size(block); }

void *region_alloc48(struct slate_region *region);
struct node *region_new(struct slate_region *region);
void *region_alloc(struct slate_region *region, size_t size);

struct node {
    struct node *left, *right;
    unsigned kind;
};

void *region_alloc48(struct slate_region *region) { return slate_region_alloc(region, 48); }

struct node *region_new(struct slate_region *region)
{
    return slate_region_new(region, struct node);
}

void *region_alloc(struct slate_region *region, size_t size)
{
    return slate_region_alloc(region, size);
}
