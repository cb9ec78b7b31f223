/* interface_malloc.h - the operations that are measured, as the process's malloc has them: libc's
 * own, or a preloaded library's.
 *
 * SPDX-License-Identifier: MIT
 */
#include <malloc.h>
#include <stdlib.h>

#define ALLOCATE(size) malloc(size)
#define ALLOCATE_ZERO(size) calloc(1, size)
#define ALLOCATE_ALIGNED(log2, size) allocate_aligned(log2, size)
/* A realloc to 0 bytes may free; a block is meant. */
#define REALLOCATE(block, size) realloc(block, (size) ? (size) : 1)
#define FREE(block) free(block)
#define USABLE_SIZE(block) malloc_usable_size(block)

/* posix_memalign takes any size, which aligned_alloc need not. */
static inline void *allocate_aligned(unsigned log2, size_t size)
{
    void *block = NULL;
    size_t alignment = (size_t)1 << log2;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    return posix_memalign(&block, alignment, size) == 0 ? block : NULL;
}
