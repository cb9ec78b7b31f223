/* lib/reserve.c - the reservation, and its ladder of sizes.
 *
 * SPDX-License-Identifier: MIT
 */
#include "reserve.h"

#include <errno.h>

#include "os.h"
#include "report.h"
#include "tunables.h"

#define POOL_MOST ((size_t)256 << 30)
#define LEAST ((size_t)16 << 20) /* of a slice, and of the pool */
#define ARENAS_LEAST 4

/* Tables are made usable for so many bytes of blocks at a time: a page of the smallest table. */
#define COVER ((size_t)16 << 20)

struct slatei_reserve slatei_reserve;

struct plan {
    size_t pool, slice, arenas;
    size_t span, map, descriptors, offsets, arena_area, tables, total;
};

/* The tables come first, those that a process begins with side by side and close to the pool: they
 * share page tables then.  False when the plan has more granules than a descriptor can name. */
static bool fill(struct plan *plan)
{
    size_t page = slatei_os_page_size();
    plan->span = plan->pool + plan->arenas * SLATE_CLASSES * plan->slice;
    size_t granules = plan->span >> SLATE_GRANULE_SHIFT_;
    plan->map = slatei_round_up(granules * sizeof(uint16_t), page);
    plan->descriptors = slatei_round_up(granules * sizeof(struct slatei_descriptor), page);
    plan->offsets = slatei_round_up(granules, page);
    plan->arena_area = slatei_round_up(plan->arenas * SLATEI_ARENA_STRIDE, page);
    plan->tables = slatei_round_up(plan->map + plan->descriptors + plan->offsets + plan->arena_area,
                                   slatei_os_huge_page_size());
    plan->total = plan->tables + plan->span;
    return granules <= UINT32_MAX;
}

/* At most 3/4 of a limited address space; the rest is the program's. */
static int attempt(struct plan *plan, void **address)
{
    size_t limit = slatei_os_address_limit();
    if (!fill(plan) || (limit != SIZE_MAX && plan->total > limit / 4 * 3))
        return ENOMEM;
    return slatei_os_reserve(slatei_round_up(plan->total, slatei_os_page_size()),
                             slatei_os_huge_page_size(), address);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* What the tables leave of the share of a limited address space; SIZE_MAX without a limit. */
static size_t room_for_blocks(void)
{
    size_t limit = slatei_os_address_limit();
    /* 1/64 is more than the tables take. */
    return limit == SIZE_MAX ? SIZE_MAX : limit / 4 * 3 - limit / 64;
}

/* The pool beside class slices.  A limit is used to the full: what is no slice's is the pool's. */
static void choose_pool(struct plan *plan)
{
    size_t slices = plan->arenas * SLATE_CLASSES * plan->slice;
    size_t room = room_for_blocks();
    plan->pool = plan->slice * 64;
    if (room != SIZE_MAX && room > slices && room - slices > plan->pool)
        plan->pool = (room - slices) & ~(slatei_os_huge_page_size() - 1);
    plan->pool = smaller(POOL_MOST, plan->pool);
}

/* Class slices of the wished span, then smaller, then fewer arenas. */
static int climb_slices(struct plan *plan, void **address)
{
    int error = ENOMEM;
    plan->arenas = slatei_settings.arenas;
    size_t huge = slatei_os_huge_page_size();
    for (plan->slice = slatei_round_up(slatei_settings.slice_bytes, huge); plan->slice >= LEAST;
         plan->slice /= 2) {
        choose_pool(plan);
        if ((error = attempt(plan, address)) == 0)
            return 0;
    }
    plan->slice = LEAST > huge ? LEAST : huge;
    for (plan->arenas /= 2; plan->arenas >= ARENAS_LEAST; plan->arenas /= 2) {
        choose_pool(plan);
        if ((error = attempt(plan, address)) == 0)
            return 0;
    }
    return error;
}

/* The pool alone: every class of every arena takes its units from it. */
static int climb_pool(struct plan *plan, void **address)
{
    int error = ENOMEM;
    size_t huge = slatei_os_huge_page_size();
    plan->slice = 0;
    plan->arenas = slatei_settings.arenas;
    for (plan->pool = smaller(POOL_MOST, room_for_blocks()) & ~(huge - 1); plan->pool >= LEAST;
         plan->pool = (plan->pool / 2) & ~(huge - 1))
        if ((error = attempt(plan, address)) == 0)
            return 0;
    return error;
}

static void tell(const struct plan *plan)
{
    struct slatei_line line = {0};
    slatei_line_text(&line, "slate: " SLATE_VERSION ", policy ");
    slatei_line_text(&line, slatei_policy_name(slatei_settings.policy));
    slatei_line_text(&line, ", reserved ");
    slatei_line_bytes(&line, plan->span);
    slatei_line_text(&line, ": pool ");
    slatei_line_bytes(&line, plan->pool);
    if (plan->slice != 0) {
        slatei_line_text(&line, ", class slices of ");
        slatei_line_bytes(&line, plan->slice);
    } else {
        slatei_line_text(&line, ", no class slices");
    }
    slatei_line_text(&line, ", arenas ");
    slatei_line_number(&line, plan->arenas);
    slatei_line_text(&line, ", switch point ");
    slatei_line_bytes(&line, slatei_settings.switch_bytes);
    slatei_line_print(&line);
}

int slatei_reserve_start(void)
{
    struct plan plan;
    void *address = NULL;
    int error = ENOMEM;
    /* What one class slice has made usable no other part of the heap can use: where that is
     * limited, everything is the pool's. */
    if (slatei_settings.policy != SLATEI_SHARED && !slatei_os_data_limited())
        error = climb_slices(&plan, &address);
    if (error != 0)
        error = climb_pool(&plan, &address);
    if (error != 0) {
        slatei_report("no memory: the system refuses to reserve even 16 MiB of address space "
                      "(see ulimit -v); every allocation will fail",
                      NULL);
        return error;
    }
    /* Also where huge pages are the system's default, each one is to be the policy's decision. */
    slatei_os_advise_huge(address, plan.total, false);
    char *at = address;
    slatei_reserve.descriptor = (struct slatei_descriptor *)(void *)at;
    at += plan.descriptors;
    slatei_reserve.unit_offset = (uint8_t *)at;
    at += plan.offsets;
    slatei_reserve.arena_area = at;
    at += plan.arena_area;
    slatei_reserve.map = (uint16_t *)(void *)at;
    slatei_reserve.base = (char *)address + plan.tables;
    slatei_reserve.span = plan.span;
    slatei_reserve.pool_span = plan.pool;
    slatei_reserve.slice_span = plan.slice;
    slatei_reserve.arenas = plan.arenas;
    if (slatei_settings.verbose)
        tell(&plan);
    return 0;
}

static int cover_table(void *table, size_t size, size_t first, size_t last)
{
    size_t page = slatei_os_page_size();
    char *from = (char *)table + (first * size & ~(page - 1));
    char *to = (char *)table + slatei_round_up(last * size, page);
    return slatei_os_commit(from, (size_t)(to - from));
}

int slatei_reserve_cover(size_t start, size_t span, size_t old_limit, size_t limit)
{
    size_t old_end = smaller(span, slatei_round_up(old_limit, COVER));
    size_t end = smaller(span, slatei_round_up(limit, COVER));
    if (end <= old_end)
        return 0;
    size_t first = (start + old_end) >> SLATE_GRANULE_SHIFT_;
    size_t last = (start + end) >> SLATE_GRANULE_SHIFT_;
    int error = cover_table(slatei_reserve.map, sizeof *slatei_reserve.map, first, last);
    if (error == 0)
        error =
            cover_table(slatei_reserve.descriptor, sizeof *slatei_reserve.descriptor, first, last);
    if (error == 0)
        error = cover_table(slatei_reserve.unit_offset, sizeof *slatei_reserve.unit_offset, first,
                            last);
    return error;
}

static size_t purge_table(void *table, size_t size, size_t first, size_t end)
{
    size_t page = slatei_os_page_size();
    char *from = (char *)table + slatei_round_up(first * size, page);
    char *to = (char *)table + ((end * size) & ~(page - 1));
    size_t resident = 0;
    if (from >= to)
        return 0;
    slatei_os_resident(from, (size_t)(to - from), &resident);
    return slatei_os_discard(from, (size_t)(to - from)) == 0 ? resident : 0;
}

size_t slatei_reserve_purge(size_t first, size_t end)
{
    return purge_table(slatei_reserve.map, sizeof *slatei_reserve.map, first, end) +
           purge_table(slatei_reserve.descriptor, sizeof *slatei_reserve.descriptor, first, end) +
           purge_table(slatei_reserve.unit_offset, sizeof *slatei_reserve.unit_offset, first, end);
}
