/* lib/debug.h - looks over blocks and arenas, in builds configured with --enable-debug.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_DEBUG_H
#define SLATEI_DEBUG_H

#include "arena.h"

#ifdef SLATEI_DEBUG
/* Aborts unless `block`, which is about to be freed, is a block in use as far as the heap's tables
 * tell.  Blocks outside the reservation, and those that the tables do not know, are the slow paths'
 * business. */
void slatei_debug_block(const void *block);
/* Aborts unless what the calling thread's arena holds fits together. */
void slatei_debug_arena(const struct slatei_arena *arena);
#else
static inline void slatei_debug_block(const void *block) { (void)block; }
static inline void slatei_debug_arena(const struct slatei_arena *arena) { (void)arena; }
#endif

#endif
