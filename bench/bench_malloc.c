/* bench_malloc.c - the loops of the small comparisons on the process's malloc.
 *
 * SPDX-License-Identifier: MIT
 */
#include "interface_malloc.h"

#define MICRO_TABLE micro_malloc
#define CONTENTION_KIND contention_malloc

#include "contention_loop.h"
#include "micro_loop.h"
