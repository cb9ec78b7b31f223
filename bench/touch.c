/* touch.c - memory that is taken and given back before a measured run.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "touch.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* Touches and frees `bytes` on pages of the kind that `advice` asks for. */
static void touch_pages(size_t bytes, int advice)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    madvise(memory, bytes, advice);
    long page = sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += (size_t)page)
        ((volatile char *)memory)[i] = 1;
    munmap(memory, bytes);
}

void touch_memory(uint64_t kb)
{
    /* A run may ask for more than there is: then it is to fail, not the harness. */
    long free_pages = sysconf(_SC_AVPHYS_PAGES);
    uint64_t most_kb = (uint64_t)(free_pages > 0 ? free_pages : 0) *
                       (uint64_t)sysconf(_SC_PAGESIZE) / 1024 / 4 * 3;
    size_t bytes = (size_t)(kb < most_kb ? kb : most_kb) << 10;
    if (bytes == 0)
        return;
    /* Small and huge pages come from different ends of the kernel's free memory. */
    touch_pages(bytes, MADV_NOHUGEPAGE);
    touch_pages(bytes, MADV_HUGEPAGE);
}
