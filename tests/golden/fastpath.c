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
