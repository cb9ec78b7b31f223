/* lib/slice.h - units and their records: where a class gets its blocks, and where they go back.
 *
 * SPDX-License-Identifier: MIT
 *
 * All functions that take an arena are called by its owner.
 */
#ifndef SLATEI_SLICE_H
#define SLATEI_SLICE_H

#include "arena.h"

/* What holds for every unit of a class.  Constant after slatei_slice_start. */
struct slatei_class {
    uint32_t reciprocal; /* offset in the unit * reciprocal >> 32 == place */
    uint16_t room;       /* blocks on the stack at which a flush comes */
    uint16_t keep;       /* blocks that a flush leaves there */
    uint16_t granules;   /* of a unit */
    uint16_t capacity;   /* blocks of a unit: granules * 4096 / size, or what the record can hold */
    uint16_t ready;      /* a used-up unit is looked at again when so many of its blocks are free */
};

extern struct slatei_class slatei_classes[SLATE_CLASSES];

extern const struct slatei_arena_hooks slatei_slice_hooks;

/* Computes the table above.  Called once. */
void slatei_slice_start(void);

/* The bits of a unit's record, for counting. */
const uint64_t *slatei_slice_bits(size_t unit);

/* A block of the class when its stack and word are empty (or not).  NULL when the system gives no
 * memory. */
void *slatei_slice_alloc(struct slatei_arena *arena, unsigned class_index);
/* The same; `zero` receives whether all of the block is zero. */
void *slatei_slice_alloc_zero(struct slatei_arena *arena, unsigned class_index, bool *zero);
/* Pushes a block of this arena, and flushes when it is time. */
void slatei_slice_push(struct slatei_arena *arena, unsigned class_index, void *block);
/* Keeps the newest blocks of the stack and puts the others back into their records. */
void slatei_slice_flush(struct slatei_arena *arena, unsigned class_index);
/* How many blocks are on the stack of a class, and on all stacks. */
size_t slatei_slice_depth(const struct slatei_arena *arena, unsigned class_index);
size_t slatei_slice_stacked(const struct slatei_arena *arena);
/* Takes in what other threads freed. */
void slatei_slice_drain(struct slatei_arena *arena);
/* Puts every free block back into its record and wholly free units back into the pool. */
void slatei_slice_flush_all(struct slatei_arena *arena);

/* Bytes of blocks on the stacks of the classes, and of kept large runs. */
size_t slatei_slice_held(const struct slatei_arena *arena);
/* Does slatei_slice_flush_all, then gives back the pages of the arena's units that hold no live
 * block.  Returns the bytes that were in memory. */
size_t slatei_slice_purge_own(struct slatei_arena *arena);

/* Takes in what other threads freed of the calling thread's arena, and puts the free blocks of the
 * parked arenas and the shared one into their records.  With `bytes` the own arena's too, and then
 * gives back the pages of all their units that hold no live block, and adds how many bytes of them
 * were in memory. */
void slatei_slice_settle(size_t *bytes);

#endif
