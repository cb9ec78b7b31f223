/* bench_call.c - the loops of the small comparisons on slate's real symbols.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_NO_INLINE 1
#include "interface_slate.h"

#define MICRO_TABLE micro_call
#define CONTENTION_KIND contention_call

#include "contention_loop.h"
#include "micro_loop.h"
