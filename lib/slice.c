/* lib/slice.c - class slices, units and records: refill, flush.
 *
 * SPDX-License-Identifier: MIT
 *
 * A class of an arena takes one unit at a time, from its class slice or else from the pool.  A
 * unit's free places are set bits in its record; the entry holds one word of them, and a stack of
 * newer free blocks.  A unit is one of:
 *
 * - current: the word came from it; one a class at most;
 * - available, on the class's list: at least `ready` places are free, or it is new;
 * - asleep: used up; it wakes when `asleep` more blocks have come back;
 * - returned: wholly free, on the arena's way back to the pool.
 *
 * Every free place of a unit is in exactly one of: its bits, the entry's word, the entry's stack
 * (or under SLATE_ORDER=lifo what was below it), the stack of foreign frees.
 */
#include "slice.h"

#include <string.h>

#include "large.h"
#include "os.h"
#include "pool.h"
#include "report.h"
#include "tunables.h"

enum slatei_unit_state { ASLEEP, AVAILABLE, CURRENT };

/* Blocks of up to 1 KiB have units of at least 8 KiB: smaller ones are walked through too often. */
#define SMALL_BLOCK 1024
#define SMALL_UNIT 2
#define UNIT_MOST 200 /* granules; unit_offset has a byte */
/* A unit wastes at most 1/40 at its end, or holds at least 32 blocks. */
#define WASTE 40
#define BLOCKS 32
/* A used-up unit is looked at again once 1/16 of it is free. */
#define READY 16
/* A stack holds 128 blocks or 512 KiB, and a flush leaves half of that: programs free and allocate
 * in waves, and what a smaller stack puts back it takes again at once. */
#define ROOM_BYTES ((size_t)512 << 10)
/* Where in its record a block goes is looked up so many blocks ahead. */
#define AHEAD 8
/* The lowest of so many available units is taken next. */
#define CHOICE 9
/* One wholly free unit of at most this size (granules) stays with a class that has no other
 * available. */
#define SPARE 8
#define PREFETCH 4
/* All stacks are flushed when so many granules have gone back to the pool (4 MiB). */
#define SETTLE 1024

struct slatei_class slatei_classes[SLATE_CLASSES];

static inline struct slatei_descriptor *record(size_t granule)
{
    return &slatei_reserve.descriptor[granule];
}

/* The bits run on into the descriptors of the unit's other granules. */
static inline uint64_t *bits_of(size_t unit)
{
    char *start = (char *)record(unit) + offsetof(struct slatei_descriptor, unit.bits);
    return (uint64_t *)(void *)start;
}

const uint64_t *slatei_slice_bits(size_t unit) { return bits_of(unit); }

static inline unsigned words_of(unsigned capacity) { return (capacity + 63) / 64; }

static unsigned unit_granules(size_t size)
{
    unsigned granules = (unsigned)((size + SLATEI_GRANULE - 1) / SLATEI_GRANULE);
    if (size <= SMALL_BLOCK && granules < SMALL_UNIT)
        granules = SMALL_UNIT;
    for (;; granules++) {
        size_t bytes = granules * SLATEI_GRANULE;
        if (bytes % size * WASTE <= bytes || bytes >= size * BLOCKS || granules == UNIT_MOST)
            return granules;
    }
}

void slatei_slice_start(void)
{
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        struct slatei_class *class = &slatei_classes[i];
        size_t size = slate_class_size_(i);
        class->granules = (uint16_t)unit_granules(size);
        size_t capacity = class->granules * SLATEI_GRANULE / size;
        size_t bits = (class->granules * sizeof(struct slatei_descriptor) -
                       offsetof(struct slatei_descriptor, unit.bits)) *
                      8;
        bits &= ~(size_t)63;
        class->capacity = (uint16_t)(capacity < bits ? capacity : bits);
        class->ready = class->capacity / READY != 0 ? class->capacity / READY : 1;
        class->reciprocal = (uint32_t)((UINT32_MAX + size) / size);
        size_t room = ROOM_BYTES / size;
        class->room = (uint16_t)(room < SLATEI_STACK_MOST ? room : SLATEI_STACK_MOST);
        class->keep = class->room / 2;
    }
}

/* ---- lists of units */

static void add_available(struct slate_behind_ *behind, uint32_t unit)
{
    struct slatei_descriptor *added = record(unit);
    added->unit.state = AVAILABLE;
    added->unit.previous = 0;
    added->unit.next = behind->available;
    if (behind->available != 0)
        record(behind->available)->unit.previous = unit;
    behind->available = unit;
}

static void remove_available(struct slate_behind_ *behind, uint32_t unit)
{
    struct slatei_descriptor *removed = record(unit);
    if (removed->unit.previous != 0)
        record(removed->unit.previous)->unit.next = removed->unit.next;
    else
        behind->available = removed->unit.next;
    if (removed->unit.next != 0)
        record(removed->unit.next)->unit.previous = removed->unit.previous;
}

static inline bool from_pool(uint32_t unit)
{
    return unit < slatei_reserve.pool_span >> SLATE_GRANULE_SHIFT_;
}

/* A wholly free unit goes back to the pool; in a class slice nobody else can use it, so it stays
 * available. */
static void return_unit(struct slatei_arena *arena, struct slate_behind_ *behind, uint32_t unit)
{
    if (from_pool(unit)) {
        record(unit)->unit.next = arena->returns;
        arena->returns = unit;
    } else {
        add_available(behind, unit);
        record(unit)->unit.asleep = INT32_MAX;
    }
}

/* All units that a flush found wholly free go back under one lock. */
static void send_returns(struct slatei_arena *arena)
{
    uint32_t unit = arena->returns;
    if (unit == 0)
        return;
    arena->returns = 0;
    slatei_pool_lock();
    while (unit != 0) {
        uint32_t next = record(unit)->unit.next;
        unsigned class_index = record(unit)->unit.class_index;
        arena->front.behind[class_index].units--;
        arena->returned++;
        arena->returned_since += slatei_classes[class_index].granules;
        slatei_pool_put_locked(unit, slatei_classes[class_index].granules, false);
        unit = next;
    }
    slatei_pool_unlock();
}

static unsigned count_free(size_t unit)
{
    unsigned count = 0;
    const uint64_t *bits = bits_of(unit);
    for (unsigned i = 0; i < words_of(record(unit)->unit.capacity); i++)
        count += (unsigned)__builtin_popcountll(bits[i]);
    return count;
}

/* ---- new units */

static uint32_t carve(struct slatei_arena *arena, unsigned class_index, unsigned granules)
{
    struct slatei_slice *slice = &arena->slices[class_index];
    size_t top = slice->top + granules * SLATEI_GRANULE;
    if (top > slice->span || (top > slice->limit && slatei_policy_raise(slice, top) != 0))
        return 0;
    uint32_t unit = (uint32_t)slatei_granule_of(slice->base + slice->top);
    slice->top = top;
    uint16_t value = (uint16_t)(arena->front.tag + class_index);
    for (unsigned i = 0; i < granules; i++)
        slatei_reserve.map[unit + i] = value;
    return unit;
}

static bool new_unit(struct slatei_arena *arena, unsigned class_index)
{
    struct slate_behind_ *behind = &arena->front.behind[class_index];
    const struct slatei_class *class = &slatei_classes[class_index];
    /* What lies above an orphan's bump pointer may have been written to all the same. */
    bool zero = !arena->rebuilt;
    uint32_t unit = 0;
    if (slatei_reserve.slice_span != 0)
        unit = carve(arena, class_index, class->granules);
    /* A full slice is no reason to fail. */
    if (unit == 0)
        unit = (uint32_t)slatei_pool_take(class->granules, 1,
                                          (uint16_t)(arena->front.tag + class_index), &zero);
    if (unit == 0)
        return false;
    arena->taken++;
    behind->units++;
    for (unsigned i = 0; i < class->granules; i++)
        slatei_reserve.unit_offset[unit + i] = (uint8_t)i;
    struct slatei_descriptor *made = record(unit);
    unsigned capacity = class->capacity;
    uint64_t *bits = bits_of(unit);
    for (unsigned i = 0; i < words_of(capacity); i++)
        bits[i] = capacity - i * 64 >= 64 ? UINT64_MAX : (UINT64_C(1) << (capacity & 63)) - 1;
    made->unit.class_index = (uint8_t)class_index;
    made->unit.fresh = zero;
    made->unit.asleep = INT32_MAX;
    made->unit.capacity = (uint16_t)capacity;
    add_available(behind, unit);
    return true;
}

/* ---- free places */

/* Enough blocks have come back to a unit that its state may change. */
static __attribute__((noinline)) void wake(struct slatei_arena *arena, struct slate_behind_ *behind,
                                           uint32_t unit)
{
    struct slatei_descriptor *woken = record(unit);
    const struct slatei_class *class = &slatei_classes[woken->unit.class_index];
    switch (woken->unit.state) {
    case CURRENT:
        woken->unit.asleep = INT32_MAX;
        return;
    case ASLEEP:
        woken->unit.asleep = (int32_t)(woken->unit.capacity - count_free(unit));
        if (woken->unit.asleep > 0) {
            add_available(behind, unit);
            return;
        }
        if (behind->available == 0 && class->granules <= SPARE) {
            add_available(behind, unit);
            woken->unit.asleep = INT32_MAX;
            return;
        }
        break;
    default:
        if (behind->available == unit && woken->unit.next == 0 && class->granules <= SPARE) {
            woken->unit.asleep = INT32_MAX;
            return;
        }
        remove_available(behind, unit);
        break;
    }
    return_unit(arena, behind, unit);
}

static atomic_bool double_free_told;

static __attribute__((noinline)) void double_free(void)
{
    if (slatei_report_first(&double_free_told))
        slatei_report("a block was freed twice; the heap is damaged", NULL);
}

static inline void put_back(struct slatei_arena *arena, unsigned class_index, void *block)
{
    size_t offset = (size_t)((char *)block - slatei_reserve.base);
    uint32_t unit = (uint32_t)(offset >> SLATE_GRANULE_SHIFT_);
    unit -= slatei_reserve.unit_offset[unit];
    struct slatei_descriptor *home = record(unit);
    uint64_t inside = offset - ((size_t)unit << SLATE_GRANULE_SHIFT_);
    uint64_t place = inside * slatei_classes[class_index].reciprocal >> 32;
    uint64_t *word = bits_of(unit) + (place >> 6);
    uint64_t bit = UINT64_C(1) << (place & 63);
    if (__builtin_expect((*word & bit) != 0, 0)) {
        double_free();
        return;
    }
    *word |= bit;
    if (__builtin_expect(--home->unit.asleep == 0, 0))
        wake(arena, &arena->front.behind[class_index], unit);
}

/* ---- stacks */

static void set_depth(struct slatei_arena *arena, unsigned class_index, size_t depth)
{
    void **slot = arena->stack[class_index];
    arena->front.entry[class_index].newest = slot[depth + 1];
    arena->front.behind[class_index].top = slot + depth;
}

static void empty_stack(struct slatei_arena *arena, unsigned class_index)
{
    void **slot = arena->stack[class_index];
    arena->front.behind[class_index].limit = slot + slatei_classes[class_index].room;
    /* As set_depth does it for 0, but without a look at slot 1: in a new arena that would bring in
     * every page of the stacks. */
    arena->front.behind[class_index].top = slot;
    arena->front.entry[class_index].newest = NULL;
}

size_t slatei_slice_depth(const struct slatei_arena *arena, unsigned class_index)
{
    return (size_t)(arena->front.behind[class_index].top - arena->stack[class_index]);
}

size_t slatei_slice_stacked(const struct slatei_arena *arena)
{
    size_t blocks = 0;
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        blocks += slatei_slice_depth(arena, i);
    return blocks;
}

/* The blocks of the stack, the oldest first and the newest among them. */
static void **all_on_stack(struct slatei_arena *arena, unsigned class_index, size_t depth)
{
    arena->stack[class_index][depth + 1] = arena->front.entry[class_index].newest;
    return &arena->stack[class_index][2];
}

/* The oldest blocks have left the stack. */
static void drop_oldest(struct slatei_arena *arena, unsigned class_index, size_t depth,
                        size_t count)
{
    void **oldest = &arena->stack[class_index][2];
    memmove(oldest, oldest + count, (depth - count) * sizeof *oldest);
    set_depth(arena, class_index, depth - count);
}

/* Puts the oldest blocks of the stack back into their records. */
static void unstack(struct slatei_arena *arena, unsigned class_index, size_t count)
{
    size_t depth = slatei_slice_depth(arena, class_index);
    void **oldest = all_on_stack(arena, class_index, depth);
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            size_t granule = slatei_granule_of(oldest[i + AHEAD]);
            granule -= slatei_reserve.unit_offset[granule];
            __builtin_prefetch(&record(granule)->unit.asleep, 1);
        }
        put_back(arena, class_index, oldest[i]);
    }
    drop_oldest(arena, class_index, depth, count);
    arena->flushed += count;
}

/* Puts the entry's word back into the record of the current unit. */
static void put_back_word(struct slatei_arena *arena, unsigned class_index)
{
    struct slate_entry_ *entry = &arena->front.entry[class_index];
    struct slate_behind_ *behind = &arena->front.behind[class_index];
    if (entry->word == 0)
        return;
    behind->next_word--;
    bits_of(behind->current)[behind->next_word] |= entry->word;
    record(behind->current)->unit.fresh = false; /* its words now come in no order */
    entry->word = 0;
}

/* Plain LIFO: what does not fit on the stack goes below it, and before anything else is used it
 * comes back. */
static void move_below(struct slatei_arena *arena, unsigned class_index, size_t count)
{
    size_t depth = slatei_slice_depth(arena, class_index);
    void **oldest = all_on_stack(arena, class_index, depth);
    for (size_t i = 0; i < count; i++) {
        struct slate_block_ *block = oldest[i];
        block->next = arena->older[class_index];
        arena->older[class_index] = block;
    }
    drop_oldest(arena, class_index, depth, count);
    put_back_word(arena, class_index);
}

/* To an empty stack. */
static void move_up(struct slatei_arena *arena, unsigned class_index)
{
    struct slate_block_ *newest = arena->older[class_index], *block = newest;
    size_t depth = 0;
    for (; block != NULL && depth < slatei_classes[class_index].keep; block = block->next)
        depth++;
    arena->older[class_index] = block;
    for (size_t i = depth; i > 0; i--, newest = newest->next)
        arena->stack[class_index][i + 1] = newest;
    set_depth(arena, class_index, depth);
}

void slatei_slice_flush(struct slatei_arena *arena, unsigned class_index)
{
    size_t depth = slatei_slice_depth(arena, class_index);
    size_t keep = slatei_classes[class_index].keep;
    arena->flushes++;
    if (depth <= keep)
        return;
    if (slatei_settings.order == SLATEI_LIFO) {
        move_below(arena, class_index, depth - keep);
        return;
    }
    unstack(arena, class_index, depth - keep);
    send_returns(arena);
    /* When much has become free, what the stacks of the other classes hold parts the free runs. */
    if (arena->returned_since >= SETTLE)
        slatei_slice_flush_all(arena);
}

void slatei_slice_push(struct slatei_arena *arena, unsigned class_index, void *block)
{
    struct slate_entry_ *entry = &arena->front.entry[class_index];
    struct slate_behind_ *behind = &arena->front.behind[class_index];
    *++behind->top = entry->newest;
    entry->newest = block;
    if (behind->top >= behind->limit)
        slatei_slice_flush(arena, class_index);
}

void slatei_slice_drain(struct slatei_arena *arena)
{
    struct slate_block_ *block = slatei_arena_take_foreign(arena);
    while (block != NULL) {
        struct slate_block_ *next = block->next;
        unsigned class_index = slatei_reserve.map[slatei_granule_of(block)] - arena->front.tag;
        slatei_slice_push(arena, class_index, block);
        block = next;
    }
}

/* ---- refill */

/* Takes the unit with the lowest address among the first few: it keeps the heap dense. */
static uint32_t choose(const struct slate_behind_ *behind)
{
    uint32_t best = behind->available;
    uint32_t unit = best;
    for (unsigned i = 1; i < CHOICE && (unit = record(unit)->unit.next) != 0; i++)
        if (unit < best)
            best = unit;
    return best;
}

/* Loads the next word that has a free place, from the current unit or another. */
static bool refill(struct slatei_arena *arena, unsigned class_index)
{
    struct slate_behind_ *behind = &arena->front.behind[class_index];
    struct slate_entry_ *entry = &arena->front.entry[class_index];
    uint32_t unit = behind->current, index = behind->next_word;
    for (;;) {
        if (unit != 0) {
            struct slatei_descriptor *current = record(unit);
            uint64_t *bits = bits_of(unit);
            unsigned words = words_of(current->unit.capacity);
            while (index < words && bits[index] == 0)
                index++;
            if (index < words) {
                entry->word = bits[index];
                entry->word_base = slatei_address_of(unit) + (size_t)index * 64 * entry->size;
                bits[index] = 0;
                behind->current = unit;
                behind->next_word = (uint16_t)(index + 1);
                behind->fresh = current->unit.fresh;
                uint64_t word = entry->word;
                for (unsigned i = 0; i < PREFETCH && word != 0; i++, word &= word - 1)
                    __builtin_prefetch(entry->word_base + slate_lowest_(word) * entry->size, 1);
                return true;
            }
            current->unit.fresh = false;
            unsigned free_places = count_free(unit);
            index = 0;
            if (free_places >= slatei_classes[class_index].ready)
                continue;
            current->unit.state = ASLEEP;
            current->unit.asleep = (int32_t)(slatei_classes[class_index].ready - free_places);
            behind->current = 0;
        }
        if (behind->available == 0 && !new_unit(arena, class_index)) {
            behind->current = 0;
            return false;
        }
        unit = choose(behind);
        remove_available(behind, unit);
        record(unit)->unit.state = CURRENT;
        record(unit)->unit.asleep = INT32_MAX;
        index = 0;
    }
}

void *slatei_slice_alloc_zero(struct slatei_arena *arena, unsigned class_index, bool *zero)
{
    struct slate_entry_ *entry = &arena->front.entry[class_index];
    arena->slow++;
    slatei_slice_drain(arena);
    if (arena->older[class_index] != NULL && slatei_slice_depth(arena, class_index) == 0)
        move_up(arena, class_index);
    *zero = false;
    void *block = entry->newest;
    if (block != NULL) {
        entry->newest = *arena->front.behind[class_index].top--;
        return block;
    }
    if (entry->word == 0 && !refill(arena, class_index))
        return NULL;
    uint64_t place = slate_lowest_(entry->word);
    entry->word &= entry->word - 1;
    *zero = arena->front.behind[class_index].fresh;
    return entry->word_base + place * entry->size;
}

void *slatei_slice_alloc(struct slatei_arena *arena, unsigned class_index)
{
    bool zero;
    return slatei_slice_alloc_zero(arena, class_index, &zero);
}

/* ---- parking */

void slatei_slice_flush_all(struct slatei_arena *arena)
{
    arena->returned_since = 0;
    slatei_large_release_spares(arena);
    slatei_slice_drain(arena);
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        struct slate_behind_ *behind = &arena->front.behind[i];
        uint32_t current = behind->current;
        put_back_word(arena, i);
        behind->current = 0;
        behind->next_word = 0;
        do {
            unstack(arena, i, slatei_slice_depth(arena, i));
            move_up(arena, i);
        } while (slatei_slice_depth(arena, i) != 0);
        if (current != 0) {
            struct slatei_descriptor *unit = record(current);
            unsigned free_places = count_free(current);
            unit->unit.fresh = false;
            if (free_places == unit->unit.capacity) {
                return_unit(arena, behind, current);
            } else if (free_places >= slatei_classes[i].ready) {
                add_available(behind, current);
                unit->unit.asleep = (int32_t)(unit->unit.capacity - free_places);
            } else {
                unit->unit.state = ASLEEP;
                unit->unit.asleep = (int32_t)(slatei_classes[i].ready - free_places);
            }
        }
        for (uint32_t unit = behind->available, next; unit != 0; unit = next) {
            next = record(unit)->unit.next;
            if (from_pool(unit) && count_free(unit) == record(unit)->unit.capacity) {
                remove_available(behind, unit);
                return_unit(arena, behind, unit);
            }
        }
    }
    send_returns(arena);
}

/* Whether no place that touches bytes [from, to) of the unit is in use. */
static bool all_free(size_t unit, size_t size, size_t from, size_t to)
{
    unsigned capacity = record(unit)->unit.capacity;
    const uint64_t *bits = bits_of(unit);
    for (size_t place = from / size; place < capacity && place * size < to; place++)
        if ((bits[place >> 6] >> (place & 63) & 1) == 0)
            return false;
    return true;
}

static size_t purge_unit(const struct slatei_slice *slice, size_t unit, unsigned class_index)
{
    size_t size = slate_class_size_(class_index);
    size_t page = slatei_os_page_size();
    size_t bytes = slatei_classes[class_index].granules * SLATEI_GRANULE;
    size_t start = (size_t)(slatei_address_of(unit) - slice->base);
    size_t given = 0;
    /* Pages may be larger than a granule: then a unit may have none of its own. */
    for (size_t from = slatei_round_up(start, page); from + page <= start + bytes;) {
        size_t to = from;
        while (to + page <= start + bytes && all_free(unit, size, to - start, to + page - start))
            to += page;
        if (to > from)
            slatei_policy_purge(slice, from, to, &given);
        from = to + page;
    }
    return given;
}

/* Others may take and put runs of the pool meanwhile; granules of this arena stay what they are. */
static SLATEI_UNSYNCHRONISED size_t purge_range(struct slatei_arena *arena,
                                                const struct slatei_slice *slice)
{
    size_t granule = slatei_granule_of(slice->base),
           end = granule + (slice->top >> SLATE_GRANULE_SHIFT_);
    size_t given = 0;
    while (granule < end) {
        unsigned class_index = slatei_reserve.map[granule] - arena->front.tag;
        if (class_index < SLATE_CLASSES) {
            if (record(granule)->unit.capacity != 0)
                given += purge_unit(slice, granule, class_index);
            granule += slatei_classes[class_index].granules;
        } else {
            granule++;
        }
    }
    return given;
}

static void settle(struct slatei_arena *arena, size_t *bytes)
{
    slatei_slice_flush_all(arena);
    if (bytes == NULL)
        return;
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    struct slatei_slice pool = {.base = slatei_reserve.base};
    pool.top = counts.committed != 0 ? counts.top : 0;
    *bytes += purge_range(arena, &pool);
    if (slatei_reserve.slice_span != 0)
        for (unsigned i = 0; i < SLATE_CLASSES; i++) {
            const struct slatei_slice *slice = &arena->slices[i];
            *bytes += purge_range(arena, slice);
            /* The last huge page reaches beyond what was carved. */
            size_t end = slatei_round_up(slice->top, slatei_os_huge_page_size());
            slatei_policy_purge(slice, slice->top, end < slice->limit ? end : slice->limit, bytes);
        }
}

size_t slatei_slice_held(const struct slatei_arena *arena)
{
    size_t bytes = (size_t)arena->spare_granules << SLATE_GRANULE_SHIFT_;
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        bytes += slatei_slice_depth(arena, i) * arena->front.entry[i].size;
    return bytes;
}

size_t slatei_slice_purge_own(struct slatei_arena *arena)
{
    size_t bytes = 0;
    settle(arena, &bytes);
    return bytes;
}

void slatei_slice_settle(size_t *bytes)
{
    if (slatei_arena_owned()) {
        struct slatei_arena *own = (struct slatei_arena *)(void *)slate_self_;
        slatei_slice_drain(own);
        if (bytes != NULL)
            settle(own, bytes);
    }
    for (size_t i = 0; i < slatei_reserve.arenas; i++) {
        struct slatei_arena *arena = slatei_arena_at(i);
        if (arena != NULL && slatei_arena_adopt(arena)) {
            settle(arena, bytes);
            slatei_arena_park(arena);
        }
    }
    struct slatei_arena *shared = slatei_arena_enter_shared();
    if (shared != NULL) {
        settle(shared, bytes);
        slatei_arena_leave(shared);
    }
}

static void fresh_arena(struct slatei_arena *arena)
{
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        empty_stack(arena, i);
}

/* One unit of an orphaned arena: its bits are right or too few, the rest is computed anew. */
static void rebuild_unit(struct slatei_arena *arena, uint32_t unit, unsigned class_index)
{
    struct slate_behind_ *behind = &arena->front.behind[class_index];
    const struct slatei_class *class = &slatei_classes[class_index];
    struct slatei_descriptor *found = record(unit);
    /* Taken, but its owner had not yet made the record: lost. */
    if (found->unit.capacity != class->capacity || found->unit.class_index != class_index)
        return;
    behind->units++;
    unsigned free_places = count_free(unit);
    found->unit.fresh = false;
    if (free_places == class->capacity) {
        return_unit(arena, behind, unit);
    } else if (free_places >= class->ready) {
        add_available(behind, unit);
        found->unit.asleep = (int32_t)(class->capacity - free_places);
    } else {
        found->unit.state = ASLEEP;
        found->unit.asleep = (int32_t)(class->ready - free_places);
    }
}

static void rebuild_range(struct slatei_arena *arena, size_t first, size_t end)
{
    for (size_t granule = first; granule < end;) {
        unsigned class_index = slatei_reserve.map[granule] - arena->front.tag;
        if (class_index < SLATE_CLASSES) {
            rebuild_unit(arena, (uint32_t)granule, class_index);
            granule += slatei_classes[class_index].granules;
        } else {
            granule++;
        }
    }
}

static void rebuild_arena(struct slatei_arena *arena)
{
    arena->returns = 0;
    arena->rebuilt = true;
    arena->spare_granules = 0; /* they are lost, like the stacks */
    memset(arena->spare, 0, sizeof arena->spare);
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        arena->front.entry[i].word = 0;
        arena->front.behind[i] = (struct slate_behind_){0};
        arena->older[i] = NULL;
        empty_stack(arena, i);
    }
    struct slatei_pool_counts counts;
    slatei_pool_count(&counts);
    rebuild_range(arena, 1, counts.top >> SLATE_GRANULE_SHIFT_);
    if (slatei_reserve.slice_span != 0)
        for (unsigned i = 0; i < SLATE_CLASSES; i++) {
            const struct slatei_slice *slice = &arena->slices[i];
            size_t first = slatei_granule_of(slice->base);
            rebuild_range(arena, first, first + (slice->top >> SLATE_GRANULE_SHIFT_));
        }
    send_returns(arena);
}

const struct slatei_arena_hooks slatei_slice_hooks = {
    .fresh = fresh_arena,
    .park = slatei_slice_flush_all,
    .rebuild = rebuild_arena,
};
