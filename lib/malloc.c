/* lib/malloc.c - libc's allocation functions: what libslate-malloc puts in their place.
 *
 * SPDX-License-Identifier: MIT
 *
 * They keep glibc's habits where programs have come to lean on them: malloc(0) gives a block of its
 * own, realloc to 0 frees, and every block is aligned to 16 bytes.
 */
#include <errno.h>
#include <stdint.h>

#include "debug.h"
#include "malloc_names.h"
#include "os.h"
#include "reserve.h"

static void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *LIBC(malloc)(size_t size) { return slate_alloc_inline_(size); }

void LIBC(free)(void *block)
{
    slatei_debug_block(block);
    slate_free_inline_(block);
}

void *LIBC(calloc)(size_t count, size_t size)
{
    size_t bytes;
    if (SLATE_UNLIKELY_(__builtin_mul_overflow(count, size, &bytes)))
        return out_of_memory();
    return slate_zalloc_any_(bytes);
}

void *LIBC(realloc)(void *block, size_t size)
{
    if (SLATE_UNLIKELY_(size == 0) && block != NULL) {
        LIBC(free)(block);
        return NULL;
    }
    slatei_debug_block(block);
    return slate_realloc(block, size);
}

void *LIBC(reallocarray)(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return out_of_memory();
    return LIBC(realloc)(block, bytes);
}

void LIBC(cfree)(void *block) { slate_free_inline_(block); }

void LIBC(free_sized)(void *block, size_t size)
{
    (void)size;
    slate_free_inline_(block);
}

void LIBC(free_aligned_sized)(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    slate_free_inline_(block);
}

/* ---- aligned blocks */

static inline bool is_power_of_two(size_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

/* slate knows no alignments above 1 GiB: no address space has room for them, so the answer is
 * ENOMEM. */
static void *allocate_aligned(size_t alignment, size_t size)
{
    void *block = slate_aligned_alloc(alignment, size);
    if (SLATE_UNLIKELY_(block == NULL) && is_power_of_two(alignment))
        errno = ENOMEM;
    return block;
}

void *LIBC(aligned_alloc)(size_t alignment, size_t size)
{
    return allocate_aligned(alignment, size);
}

/* glibc takes 0 here, and gives what malloc gives. */
void *LIBC(memalign)(size_t alignment, size_t size)
{
    return allocate_aligned(alignment != 0 ? alignment : 1, size);
}

int LIBC(posix_memalign)(void **block, size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    int saved = errno;
    void *made = allocate_aligned(alignment, size);
    errno = saved;
    if (made == NULL)
        return ENOMEM;
    *block = made;
    return 0;
}

void *LIBC(valloc)(size_t size)
{
    slatei_os_start();
    return allocate_aligned(slatei_os_page_size(), size);
}

void *LIBC(pvalloc)(size_t size)
{
    slatei_os_start();
    size_t page = slatei_os_page_size();
    if (size > SIZE_MAX - page)
        return out_of_memory();
    return allocate_aligned(page, slatei_round_up(size, page));
}

/* ---- names that older programs, and parts of the C library, were linked with */

SLATEI_ALSO(void *, __libc_malloc, malloc, size_t);
SLATEI_ALSO(void *, __libc_calloc, calloc, size_t, size_t);
SLATEI_ALSO(void *, __libc_realloc, realloc, void *, size_t);
SLATEI_ALSO(void, __libc_free, free, void *);
SLATEI_ALSO(void, __libc_cfree, cfree, void *);
SLATEI_ALSO(void *, __libc_memalign, memalign, size_t, size_t);
SLATEI_ALSO(void *, __libc_valloc, valloc, size_t);
SLATEI_ALSO(void *, __libc_pvalloc, pvalloc, size_t);
SLATEI_ALSO(int, __posix_memalign, posix_memalign, void **, size_t, size_t);
