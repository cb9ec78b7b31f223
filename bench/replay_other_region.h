/* replay_other_region.h - what replaying in other libraries' regions has in common: all must be
 * made of plain allocation.  The includer defines REGION_ALLOCATE(size).
 *
 * SPDX-License-Identifier: MIT
 */
#include "replay_child.h"

#include <string.h>

#define REPLAY_FLOOR 0
#define ALLOCATE(size) REGION_ALLOCATE(size)
#define FREE(block) ((void)(block))
#ifndef ALLOCATE_ZERO
#define ALLOCATE_ZERO(size) zeroed(REGION_ALLOCATE(size), size)
#endif
#ifndef REALLOCATE_FROM
#define REALLOCATE_FROM(block, old_size, size)                                                     \
    ((size) <= (old_size) ? (block) : copied(REGION_ALLOCATE(size), block, old_size))
#endif
/* No trace has many. */
#define ALLOCATE_ALIGNED(log2, size)                                                               \
    ((void *)(((uintptr_t)REGION_ALLOCATE((size) + ((size_t)1 << (log2))) +                        \
               ((uintptr_t)1 << (log2)) - 1) &                                                     \
              -((uintptr_t)1 << (log2))))

static inline __attribute__((unused)) void *zeroed(void *block, size_t size)
{
    return block ? memset(block, 0, size) : NULL;
}

static inline __attribute__((unused)) void *copied(void *block, const void *from, size_t size)
{
    return block ? memcpy(block, from, size) : NULL;
}
