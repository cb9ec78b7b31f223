/* lib/stats.c - what the heap holds, counted by walking it; and the report at exit.
 *
 * SPDX-License-Identifier: MIT
 */
#include "stats.h"

#include <errno.h>
#include <string.h>

#include "arena.h"
#include "large.h"
#include "os.h"
#include "pool.h"
#include "report.h"
#include "slice.h"
#include "tunables.h"

/* Set once the reservation is made, with release; read with acquire. */
static atomic_bool started;

void slatei_stats_start(void) { atomic_store_explicit(&started, true, memory_order_release); }

/* Reads what running threads may be changing, each field of one word: then a count is a little off,
 * which the header says. */
static SLATEI_UNSYNCHRONISED size_t free_places(size_t unit, unsigned capacity)
{
    const uint64_t *bits = slatei_slice_bits(unit);
    size_t count = 0;
    for (unsigned i = 0; i < (capacity + 63) / 64; i++)
        count += (size_t)__builtin_popcountll(bits[i]);
    return count;
}

static SLATEI_UNSYNCHRONISED size_t add_unit(struct slate_stats *stats, size_t unit,
                                             unsigned class_index)
{
    const struct slatei_class *class = &slatei_classes[class_index];
    struct slate_class_stats *of_class = &stats->classes[class_index];
    size_t bytes = class->granules * SLATEI_GRANULE;
    size_t free_bytes = free_places(unit, class->capacity) * of_class->size;
    size_t blocks = class->capacity * of_class->size;
    of_class->units += bytes;
    of_class->free_unit += free_bytes;
    of_class->tails += bytes - blocks;
    of_class->in_use += blocks - free_bytes;
    return class->granules;
}

/* Granules [first, end): runs and units without a gap.  The caller sees to it that none comes or
 * goes. */
static SLATEI_UNSYNCHRONISED void walk(struct slate_stats *stats, size_t first, size_t end)
{
    for (size_t granule = first; granule < end;) {
        unsigned value = slatei_reserve.map[granule] & SLATEI_MAP_MASK;
        const struct slatei_descriptor *found = &slatei_reserve.descriptor[granule];
        size_t step;
        if (value == SLATEI_MAP_LARGE) {
            step = found->large.length;
            stats->large += step << SLATE_GRANULE_SHIFT_;
        } else if (value == SLATEI_MAP_FREE) {
            step = found->run.length;
            stats->free_runs += step << SLATE_GRANULE_SHIFT_;
        } else if (value >= SLATEI_MAP_CLASS && value < SLATEI_MAP_CLASS + SLATE_CLASSES) {
            step = add_unit(stats, granule, value - SLATEI_MAP_CLASS);
        } else {
            step = 1; /* in the pool's hands: a free run */
            stats->free_runs += SLATEI_GRANULE;
        }
        granule += step != 0 ? step : 1;
    }
}

/* The stacks and words of an arena hold free places that no bit tells of. */
static SLATEI_UNSYNCHRONISED void add_own_lists(struct slate_stats *stats,
                                                const struct slatei_arena *arena)
{
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        struct slate_class_stats *of_class = &stats->classes[i];
        const struct slate_entry_ *entry = &arena->front.entry[i];
        size_t listed = slatei_slice_depth(arena, i) * of_class->size;
        for (const struct slate_block_ *block = arena->older[i]; block != NULL; block = block->next)
            listed += of_class->size;
        size_t in_word = (size_t)__builtin_popcountll(entry->word) * of_class->size;
        of_class->free_list += listed;
        of_class->free_unit += in_word;
        of_class->in_use -= listed + in_word;
    }
    size_t spare = (size_t)arena->spare_granules << SLATE_GRANULE_SHIFT_;
    stats->large -= spare;
    stats->free_runs += spare;
}

static size_t resident_of(const void *from, size_t size)
{
    size_t resident = 0;
    if (size != 0)
        slatei_os_resident(from, slatei_round_up(size, slatei_os_page_size()), &resident);
    return resident;
}

/* The pages of a table for granules [first, end). */
static size_t resident_of_table(const void *table, size_t size, size_t first, size_t end)
{
    size_t page = slatei_os_page_size();
    const char *from = (const char *)table + (first * size & ~(page - 1));
    const char *to = (const char *)table + slatei_round_up(end * size, page);
    return resident_of(from, (size_t)(to - from));
}

static void add_tables(struct slate_stats *stats, size_t first, size_t bytes)
{
    size_t end = first + (bytes >> SLATE_GRANULE_SHIFT_);
    if (bytes == 0)
        return;
    stats->tables += resident_of_table(slatei_reserve.map, sizeof *slatei_reserve.map, first, end);
    stats->tables +=
        resident_of_table(slatei_reserve.descriptor, sizeof *slatei_reserve.descriptor, first, end);
    stats->tables += resident_of_table(slatei_reserve.unit_offset, 1, first, end);
}

static SLATEI_UNSYNCHRONISED void add_slice(struct slate_stats *stats,
                                            const struct slatei_slice *slice)
{
    size_t first = slatei_granule_of(slice->base);
    size_t top = slice->top;
    stats->committed += slice->limit;
    walk(stats, first, first + (top >> SLATE_GRANULE_SHIFT_));
    stats->above_top += slice->limit - top;
    stats->absent += slice->limit - resident_of(slice->base, slice->limit);
    add_tables(stats, first, top);
}

static SLATEI_UNSYNCHRONISED void add_arena(struct slate_stats *stats, struct slatei_arena *arena)
{
    bool own = &arena->front == slate_self_;
    stats->arenas++;
    stats->refills += arena->slow;
    stats->flushes += arena->flushes;
    stats->flushed += arena->flushed;
    stats->units_taken += arena->taken;
    stats->units_returned += arena->returned;
    if (slatei_reserve.slice_span != 0)
        for (unsigned i = 0; i < SLATE_CLASSES; i++)
            add_slice(stats, &arena->slices[i]);
    if (own)
        add_own_lists(stats, arena);
    stats->tables += resident_of(arena, SLATEI_ARENA_STRIDE);
}

static SLATEI_UNSYNCHRONISED void count(struct slate_stats *stats)
{
    for (unsigned i = 0; i < SLATE_CLASSES; i++)
        stats->classes[i].size = slate_class_size_(i);
    if (!slatei_arena_owned())
        slatei_arena_guard_forks();
    slatei_slice_settle(NULL);
    stats->reserved = slatei_reserve.span;
    struct slatei_pool_counts pool;
    slatei_pool_count(&pool);
    stats->committed = pool.committed;
    stats->contended = pool.contended;
    stats->above_top = pool.committed - (pool.committed != 0 ? pool.top : 0);
    slatei_pool_lock();
    if (pool.committed != 0)
        walk(stats, 1, pool.top >> SLATE_GRANULE_SHIFT_);
    slatei_pool_unlock();
    if (pool.committed != 0) {
        stats->above_top += SLATEI_GRANULE; /* granule 0 is nobody's */
        stats->absent += pool.committed - resident_of(slatei_reserve.base, pool.committed);
        add_tables(stats, 0, pool.high);
    }
    for (size_t i = 0; i < slatei_reserve.arenas; i++) {
        struct slatei_arena *arena = slatei_arena_at(i);
        if (arena != NULL)
            add_arena(stats, arena);
    }
    size_t blocks, resident;
    slatei_large_count(&stats->own_mappings, &blocks, &resident);
    stats->absent += stats->own_mappings - resident;
    stats->in_use = stats->large;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        stats->in_use += stats->classes[i].in_use;
        stats->free_list += stats->classes[i].free_list;
        stats->free_unit += stats->classes[i].free_unit;
        stats->tails += stats->classes[i].tails;
    }
    slatei_os_huge_resident(slatei_reserve.base, slatei_reserve.span, &stats->huge);
    stats->resident = stats->in_use + stats->free_list + stats->free_unit + stats->tails +
                      stats->free_runs + stats->above_top + stats->own_mappings + stats->tables -
                      stats->absent;
}

int slate_stats(struct slate_stats *stats, size_t size)
{
    if (size == 0)
        return EINVAL;
    struct slate_stats all;
    memset(&all, 0, sizeof all);
    if (atomic_load_explicit(&started, memory_order_acquire)) {
        if (!slatei_arena_owned())
            slatei_arena_guard_forks();
        count(&all);
    }
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
    if (size > sizeof all)
        memset((char *)stats + sizeof all, 0, size - sizeof all);
    return 0;
}

/* ---- the report at exit */

struct row {
    const char *name;
    uint64_t value;
};

#define ROWS 20

static void rows_of(const struct slate_stats *stats, struct row rows[ROWS])
{
    const struct row all[ROWS] = {
        {"reserved", stats->reserved},
        {"committed", stats->committed},
        {"in_use", stats->in_use},
        {"large", stats->large},
        {"free_list", stats->free_list},
        {"free_unit", stats->free_unit},
        {"tails", stats->tails},
        {"free_runs", stats->free_runs},
        {"above_top", stats->above_top},
        {"own_mappings", stats->own_mappings},
        {"tables", stats->tables},
        {"absent", stats->absent},
        {"resident", stats->resident},
        {"huge", stats->huge},
        {"arenas", stats->arenas},
        {"refills", stats->refills},
        {"flushes", stats->flushes},
        {"flushed", stats->flushed},
        {"units_taken", stats->units_taken},
        {"units_returned", stats->units_returned},
    };
    memcpy(rows, all, sizeof all);
}

static void print_text(const struct slate_stats *stats)
{
    struct row rows[ROWS];
    rows_of(stats, rows);
    struct slatei_line line = {0};
    for (unsigned i = 0; i < ROWS; i++) {
        slatei_line_text(&line, "slate: ");
        slatei_line_column(&line, rows[i].value, 18);
        slatei_line_text(&line, "  ");
        slatei_line_text(&line, rows[i].name);
        slatei_line_print(&line);
    }
    slatei_line_text(
        &line, "slate:   size        units       in use    free list    free unit        tails");
    slatei_line_print(&line);
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of_class = &stats->classes[i];
        if (of_class->units == 0)
            continue;
        slatei_line_text(&line, "slate: ");
        slatei_line_column(&line, of_class->size, 6);
        slatei_line_column(&line, of_class->units, 13);
        slatei_line_column(&line, of_class->in_use, 13);
        slatei_line_column(&line, of_class->free_list, 13);
        slatei_line_column(&line, of_class->free_unit, 13);
        slatei_line_column(&line, of_class->tails, 13);
        slatei_line_print(&line);
    }
}

static void json_field(struct slatei_line *line, const char *before, const char *name,
                       uint64_t value)
{
    slatei_line_text(line, before);
    slatei_line_text(line, "\"");
    slatei_line_text(line, name);
    slatei_line_text(line, "\": ");
    slatei_line_number(line, value);
}

static void print_json(const struct slate_stats *stats)
{
    struct row rows[ROWS];
    rows_of(stats, rows);
    struct slatei_line line = {0};
    slatei_line_text(&line, "{");
    for (unsigned i = 0; i < ROWS; i++) {
        json_field(&line, " ", rows[i].name, rows[i].value);
        slatei_line_text(&line, ",");
        slatei_line_print(&line);
    }
    slatei_line_text(&line, " \"classes\": [");
    bool first = true;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of_class = &stats->classes[i];
        if (of_class->units == 0)
            continue;
        if (!first) {
            slatei_line_text(&line, ",");
            slatei_line_print(&line);
        }
        first = false;
        json_field(&line, "  {", "size", of_class->size);
        json_field(&line, ", ", "units", of_class->units);
        json_field(&line, ", ", "in_use", of_class->in_use);
        json_field(&line, ", ", "free_list", of_class->free_list);
        json_field(&line, ", ", "free_unit", of_class->free_unit);
        json_field(&line, ", ", "tails", of_class->tails);
        slatei_line_text(&line, "}");
    }
    slatei_line_text(&line, "]}");
    slatei_line_print(&line);
}

static __attribute__((destructor)) void report_at_exit(void)
{
    if (slatei_settings.stats == SLATEI_STATS_NONE ||
        !atomic_load_explicit(&started, memory_order_acquire))
        return;
    struct slate_stats stats;
    slate_stats(&stats, sizeof stats);
    if (slatei_settings.stats == SLATEI_STATS_JSON)
        print_json(&stats);
    else
        print_text(&stats);
}
