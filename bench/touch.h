/* touch.h - memory that is taken and given back before a measured run.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_TOUCH_H
#define SLATE_TOUCH_H

#include <stdint.h>

/* Touches and frees `kb` KiB, or three quarters of what is free if that is less, on small pages and
 * on huge ones.  A virtual machine's host may have taken back what was free: getting it again is
 * slow and must not be charged to the allocator that comes first. */
void touch_memory(uint64_t kb);

#endif
