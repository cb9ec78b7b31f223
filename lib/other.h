/* lib/other.h - blocks of another malloc, for a library that stands in the place of libc's.
 *
 * SPDX-License-Identifier: MIT
 *
 * Libslate-malloc has these functions; in libslate they are NULL.
 */
#ifndef SLATEI_OTHER_H
#define SLATEI_OTHER_H

#include <stdbool.h>
#include <stddef.h>

#define SLATEI_OTHER __attribute__((weak, visibility("hidden")))

/* Whether another malloc, a sanitizer's, is to serve the whole process: then slate sets no heap up,
 * and everything goes to the functions below.  The answer is always the same. */
SLATEI_OTHER bool slatei_other_rules(void);

/* A block of the malloc that rules; NULL when it has none. */
SLATEI_OTHER void *slatei_other_alloc(size_t alignment, size_t size);

/* Each returns false, and nothing has happened, if `block` is no other malloc's as far as can be
 * told. */
SLATEI_OTHER bool slatei_other_free(void *block);
SLATEI_OTHER bool slatei_other_realloc(void *block, size_t size, void **moved);
SLATEI_OTHER bool slatei_other_usable(const void *block, size_t *size);

#endif
