/* interface_slate.h - the operations that are measured, as slate has them: inline; or with
 * SLATE_NO_INLINE defined before through its real symbols, a call an operation.
 *
 * SPDX-License-Identifier: MIT
 */
#include <slate.h>

#define ALLOCATE(size) slate_alloc(size)
#define ALLOCATE_ZERO(size) slate_zalloc(size)
#define ALLOCATE_ALIGNED(log2, size) slate_aligned_alloc((size_t)1 << (log2), size)
#define REALLOCATE(block, size) slate_realloc(block, size)
#define FREE(block) slate_free(block)
#define USABLE_SIZE(block) slate_usable_size(block)
