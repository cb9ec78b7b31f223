/* lib/os.h - everything that slate asks of the kernel for memory.
 *
 * SPDX-License-Identifier: MIT
 *
 * Each function returns 0 or an error number, and leaves errno as it was.  Addresses and sizes are
 * bytes; unless a comment says otherwise they are multiples of the page size.  All may be called
 * from any thread.
 */
#ifndef SLATEI_OS_H
#define SLATEI_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For a function that reads what other threads may be writing, and can live with what it finds. */
#define SLATEI_UNSYNCHRONISED __attribute__((no_sanitize("thread")))

/* Finds out the sizes below; to be called before any other function is used. */
void slatei_os_start(void);

size_t slatei_os_page_size(void);
/* The size of a transparent huge page: 2 MiB where the kernel does not tell. */
size_t slatei_os_huge_page_size(void);
/* The limit of the address space (RLIMIT_AS); SIZE_MAX without one. */
size_t slatei_os_address_limit(void);
/* Whether usable memory is limited (RLIMIT_DATA), used or not. */
bool slatei_os_data_limited(void);

/* Takes `size` bytes of address space that cannot be used yet and is in no core dump, at a multiple
 * of `alignment` (a power of two).  Where the address space is not limited, as much as `alignment`
 * around it may be taken as well, and stays so. */
int slatei_os_reserve(size_t size, size_t alignment, void **address);
/* Takes `size` bytes of zeroed memory at a multiple of `alignment` (a power of two). */
int slatei_os_map(size_t size, size_t alignment, void **address);
/* Ends what slatei_os_reserve or slatei_os_map took, or a part of it. */
int slatei_os_unmap(void *address, size_t size);
/* Makes reserved memory usable; it is zero. */
int slatei_os_commit(void *address, size_t size);
/* Gives the pages back: the memory stays usable and is zero. */
int slatei_os_discard(void *address, size_t size);
/* Asks for huge pages, or for small ones only.  A kernel without huge pages is no error. */
int slatei_os_advise_huge(void *address, size_t size, bool huge);
/* Brings usable memory in at once, without a fault for each page.  A kernel that cannot is no
 * error: the pages come when they are touched. */
void slatei_os_populate(void *address, size_t size);
/* Moves the pages of `from` to `to`, which is usable memory as well and whose own pages end; `from`
 * stays usable and is zero.  The ranges do not overlap.  After an error `to` is usable and zero,
 * and advised in no way; after ENOTRECOVERABLE it is not usable any more. */
int slatei_os_move(void *from, void *to, size_t size);
/* Makes a mapping that slatei_os_map took `size` bytes long where it is; what is new is zero.
 * ENOMEM when something is in the way. */
int slatei_os_resize(void *address, size_t old_size, size_t size);
/* Moves such a mapping to `to`, with `size` bytes, which are no fewer: its page tables, not what it
 * holds.  `to` is a mapping of that size, which ends.  Errors as above. */
int slatei_os_move_mapping(void *address, size_t old_size, void *to, size_t size);
/* How many bytes of the range are in memory now. */
int slatei_os_resident(const void *address, size_t size, size_t *resident);
/* How many bytes of the mappings that begin in the range are on transparent huge pages now. */
int slatei_os_huge_resident(const void *address, size_t size, size_t *huge);

#endif
