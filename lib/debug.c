/* lib/debug.c - looks over blocks and arenas, in builds configured with --enable-debug.
 *
 * SPDX-License-Identifier: MIT
 */
#include "debug.h"

#ifdef SLATEI_DEBUG

#include "assert.h"
#include "os.h"
#include "slice.h"

static inline const struct slatei_descriptor *record(size_t granule)
{
    return &slatei_reserve.descriptor[granule];
}

/* The place of a block in its unit; checks that it is one. */
static void check_place(const void *block, unsigned class_index)
{
    size_t granule = slatei_granule_of(block);
    size_t unit = granule - slatei_reserve.unit_offset[granule];
    const struct slatei_class *class = &slatei_classes[class_index];
    size_t inside = (size_t)((const char *)block - slatei_address_of(unit));
    SLATEI_ASSERT(granule - unit < class->granules);
    SLATEI_ASSERT(record(unit)->unit.class_index == class_index);
    SLATEI_ASSERT(record(unit)->unit.capacity == class->capacity);
    SLATEI_ASSERT(inside % slate_class_size_(class_index) == 0);
    SLATEI_ASSERT(inside / slate_class_size_(class_index) < class->capacity);
}

/* Reads a bit that belongs to the block alone, beside others that another thread may be changing.
 */
static SLATEI_UNSYNCHRONISED bool is_free(const void *block, unsigned class_index)
{
    size_t granule = slatei_granule_of(block);
    size_t unit = granule - slatei_reserve.unit_offset[granule];
    size_t place =
        (size_t)((const char *)block - slatei_address_of(unit)) / slate_class_size_(class_index);
    return (slatei_slice_bits(unit)[place >> 6] >> (place & 63) & 1) != 0;
}

void slatei_debug_block(const void *block)
{
    if (!slatei_in_reserve(block))
        return;
    unsigned tag = slatei_reserve.map[slatei_granule_of(block)] & SLATEI_MAP_MASK;
    if (tag < SLATEI_MAP_CLASS || tag >= SLATEI_MAP_CLASS + SLATE_CLASSES)
        return;
    check_place(block, tag - SLATEI_MAP_CLASS);
    SLATEI_ASSERT(!is_free(block, tag - SLATEI_MAP_CLASS));
}

static void check_free_block(const struct slatei_arena *arena, unsigned class_index,
                             const void *block)
{
    SLATEI_ASSERT(slatei_in_reserve(block));
    SLATEI_ASSERT(slatei_reserve.map[slatei_granule_of(block)] == arena->front.tag + class_index);
    check_place(block, class_index);
}

static void check_class(const struct slatei_arena *arena, unsigned class_index)
{
    const struct slate_entry_ *entry = &arena->front.entry[class_index];
    const struct slate_behind_ *behind = &arena->front.behind[class_index];
    SLATEI_ASSERT(entry->size == slate_class_size_(class_index));
    if (entry->newest != NULL) {
        check_free_block(arena, class_index, entry->newest);
        for (void *const *slot = behind->top; *slot != NULL; slot--) {
            SLATEI_ASSERT(*slot != entry->newest);
            check_free_block(arena, class_index, *slot);
        }
    }
    SLATEI_ASSERT(slatei_slice_depth(arena, class_index) <= SLATEI_STACK_MOST + 1);
    if (entry->word != 0)
        check_free_block(arena, class_index,
                         entry->word_base + slate_lowest_(entry->word) * entry->size);
    if (behind->current != 0)
        SLATEI_ASSERT(record(behind->current)->unit.class_index == class_index);
    uint32_t before = 0;
    for (uint32_t unit = behind->available; unit != 0; unit = record(unit)->unit.next) {
        SLATEI_ASSERT(unit != behind->current);
        SLATEI_ASSERT(record(unit)->unit.previous == before);
        SLATEI_ASSERT(record(unit)->unit.class_index == class_index);
        SLATEI_ASSERT(record(unit)->unit.capacity == slatei_classes[class_index].capacity);
        before = unit;
    }
}

void slatei_debug_arena(const struct slatei_arena *arena)
{
    SLATEI_ASSERT(arena->front.map == slatei_reserve.map);
    SLATEI_ASSERT(arena->front.base == (uintptr_t)slatei_reserve.base);
    SLATEI_ASSERT(atomic_load_explicit(&arena->state, memory_order_relaxed) ==
                  SLATEI_ARENA_CLAIMED);
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        check_class(arena, i);
}

#else

typedef int slatei_debug_is_off; /* a file must hold something */

#endif
