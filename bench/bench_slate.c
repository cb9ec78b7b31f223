/* bench_slate.c - the loops of the small comparisons on slate's inline interface.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_STATIC 1
#include "interface_slate.h"

#define MICRO_TABLE micro_slate
#define CONTENTION_KIND contention_slate

#include "contention_loop.h"
#include "micro_loop.h"
