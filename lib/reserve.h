/* lib/reserve.h - the reservation: where everything lies, and the tables about its granules.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_RESERVE_H
#define SLATEI_RESERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLATE_NO_INLINE
#include "slate.h"

#define SLATEI_GRANULE ((size_t)1 << SLATE_GRANULE_SHIFT_)

/* Low bits of a granule map value; the rest is the owning arena's number. */
enum {
    SLATEI_MAP_FREE = 0,                   /* free, or never handed out */
    SLATEI_MAP_CLASS = 1,                  /* 1 + class: part of a unit */
    SLATEI_MAP_LARGE = SLATE_CLASSES + 1,  /* first granule of a large block */
    SLATEI_MAP_INSIDE = SLATE_CLASSES + 2, /* any other granule of a large block */
    SLATEI_MAP_BUSY = SLATE_CLASSES + 3,   /* in the pool's own hands for a moment */
    SLATEI_MAP_MASK = (1 << SLATE_MAP_SHIFT_) - 1,
};

/* What slow paths know of a granule.  Which part holds follows from the map:
 * free: of the first granule of a free run, run; of its last, run.length alone.
 * first granule of a unit: unit, with the bits running on into the descriptors of its other
 * granules. first granule of a large block: large. */
struct slatei_descriptor {
    union {
        struct {
            uint32_t left, right; /* children in the tree of free runs, granule numbers; 0 none */
            uint32_t length;      /* granules */
            uint32_t dirty;       /* an estimate of how many of them are in memory */
            bool zero;            /* every byte is zero */
        } run;
        struct {
            uint32_t next,
                previous;      /* in the class's list of available units, or of units to return */
            int32_t asleep;    /* blocks that must come back before the unit is looked at again */
            uint16_t capacity; /* blocks; 0 until the record is whole */
            uint8_t class_index;
            uint8_t state : 7; /* of enum slatei_unit_state */
            uint8_t fresh : 1; /* every place that was not handed out yet is zero */
            uint64_t
                bits[3]; /* bit i set: place i is free, and not on a stack or in an entry's word */
        } unit;
        struct {
            uint32_t length; /* granules */
        } large;
    };
};

_Static_assert(sizeof(struct slatei_descriptor) == 40, "one cent of a granule");

/* Set once by slatei_reserve_start, constant after.
 *   span == pool_span + arenas * SLATE_CLASSES * slice_span
 *   base, pool_span and slice_span are multiples of a huge page
 *   span >> SLATE_GRANULE_SHIFT_ < 2^32 */
struct slatei_reserve {
    char *base;
    size_t span;
    size_t pool_span;  /* the pool comes first */
    size_t slice_span; /* then the class slices, by arena and class; 0: there are none */
    size_t arenas;
    uint16_t *map;
    struct slatei_descriptor *descriptor;
    uint8_t *unit_offset; /* for each granule of a unit, its distance from the unit's first */
    char *arena_area;     /* the arenas themselves */
};

extern struct slatei_reserve slatei_reserve;

/* Bytes from one arena to the next. */
#define SLATEI_ARENA_STRIDE ((size_t)65536)

/* Makes the reservation, as large as the host allows up to the settings' wishes.  Called once.
 * Returns 0, or the error number of the last refusal. */
int slatei_reserve_start(void);
/* Makes the tables usable for bytes [0, limit) of the part of the reservation that begins at byte
 * `start`; they are for [0, old_limit) already.  Returns 0 or an error number; then nothing has
 * changed that matters. */
int slatei_reserve_cover(size_t start, size_t span, size_t old_limit, size_t limit);

/* Gives back the pages of the tables that tell of nothing but granules [first, end), which are
 * free.  Returns the bytes that were in memory. */
size_t slatei_reserve_purge(size_t first, size_t end);

static inline size_t slatei_granule_of(const void *address)
{
    return (size_t)((const char *)address - slatei_reserve.base) >> SLATE_GRANULE_SHIFT_;
}

static inline char *slatei_address_of(size_t granule)
{
    return slatei_reserve.base + (granule << SLATE_GRANULE_SHIFT_);
}

static inline bool slatei_in_reserve(const void *address)
{
    return (uintptr_t)address - (uintptr_t)slatei_reserve.base < slatei_reserve.span;
}

static inline size_t slatei_round_up(size_t number, size_t power_of_two)
{
    return (number + power_of_two - 1) & ~(power_of_two - 1);
}

#endif
