/* lib/policy.c - page policy: the two-step limit, commit, give back.
 *
 * SPDX-License-Identifier: MIT
 */
#include "policy.h"

#include <stdint.h>

#include "os.h"
#include "reserve.h"
#include "tunables.h"

/* The usable part at least doubles, within these bounds (bytes): a core dump, mlockall and strict
 * overcommit see about what is used, and mprotect is called rarely. */
#define STEP_LEAST ((size_t)64 << 10)
#define STEP_MOST ((size_t)32 << 20)
/* Large blocks of up to this size (bytes) come into memory whole: a fault for each of their pages
 * took a quarter of the processor time of a small compilation (cc1-hello: 1.29 ms, 1.04 with 64
 * KiB, 0.99 with 256 KiB; no more memory in any trace).  Not in the first 512 KiB: there lie
 * buffers that a program makes at its start and may never fill. */
#define POPULATE_MOST ((size_t)256 << 10)
#define POPULATE_FROM ((size_t)512 << 10)

size_t slatei_policy_small_end(void)
{
    switch (slatei_settings.policy) {
    case SLATEI_NEVER:
        return SIZE_MAX;
    case SLATEI_ALWAYS:
        return 0;
    default:
        return slatei_round_up(slatei_settings.switch_bytes, slatei_os_huge_page_size());
    }
}

static int extend(struct slatei_slice *slice, size_t limit)
{
    size_t start = (size_t)(slice->base - slatei_reserve.base);
    int error = slatei_reserve_cover(start, slice->span, slice->limit, limit);
    if (error == 0)
        error = slatei_os_commit(slice->base + slice->limit, limit - slice->limit);
    if (error == 0)
        slice->limit = limit;
    return error;
}

int slatei_policy_raise(struct slatei_slice *slice, size_t top)
{
    size_t small_end = slatei_policy_small_end();
    size_t step = slice->limit < STEP_LEAST ? STEP_LEAST : slice->limit;
    if (step > STEP_MOST)
        step = STEP_MOST;
    size_t page = slatei_os_page_size();
    size_t need = slatei_round_up(top, page);
    size_t limit = slatei_round_up(slice->limit + step, page);
    if (limit < need)
        limit = need;
    if (top <= small_end) {
        /* The first step ends at the switch point. */
        if (limit > small_end)
            limit = small_end;
    } else {
        size_t huge = slatei_os_huge_page_size();
        if (slice->limit <= small_end && small_end < slice->span)
            slatei_os_advise_huge(slice->base + small_end, slice->span - small_end, true);
        limit = slatei_round_up(limit, huge);
        need = slatei_round_up(need, huge);
    }
    if (limit > slice->span)
        limit = slice->span;
    int error = extend(slice, limit);
    /* A host that is nearly out of memory may still have what is needed. */
    if (error != 0 && need < limit)
        error = extend(slice, need);
    return error;
}

void slatei_policy_populate(const struct slatei_slice *slice, size_t from, size_t to)
{
    if (from >= POPULATE_FROM && to <= slatei_policy_small_end() && to - from <= POPULATE_MOST)
        slatei_os_populate(slice->base + from, to - from);
}

size_t slatei_policy_give_back(const struct slatei_slice *slice, size_t from, size_t to)
{
    size_t small_end = slatei_policy_small_end();
    size_t huge = slatei_os_huge_page_size();
    size_t page = slatei_os_page_size();
    /* The pool's prefix is full of short-lived runs: what goes back there is wanted again at once.
     */
    if (slatei_settings.policy == SLATEI_SHARED && from < small_end)
        from = small_end;
    if (to > small_end) {
        size_t whole = to & ~(huge - 1);
        to = whole > small_end ? whole : small_end;
    }
    from = from < small_end ? slatei_round_up(from, page) : slatei_round_up(from, huge);
    to &= ~(page - 1);
    if (to <= from || slatei_os_discard(slice->base + from, to - from) != 0)
        return 0;
    return to - from;
}

bool slatei_policy_purge(const struct slatei_slice *slice, size_t from, size_t to, size_t *bytes)
{
    size_t small_end = slatei_policy_small_end();
    size_t huge = slatei_os_huge_page_size();
    size_t resident = 0;
    if (from >= to)
        return true;
    slatei_os_resident(slice->base + from, to - from, &resident);
    if (to > small_end && resident != 0) {
        size_t first = from & ~(huge - 1), last = (to - 1) & ~(huge - 1);
        if (from != first && first >= small_end)
            slatei_os_advise_huge(slice->base + first, huge, false);
        if (to != last + huge && last >= small_end)
            slatei_os_advise_huge(slice->base + last, huge, false);
        /* Huge pages that are wholly free forget an earlier purge of a part of them. */
        size_t whole = slatei_round_up(from > small_end ? from : small_end, huge);
        size_t whole_end = to & ~(huge - 1);
        if (whole < whole_end)
            slatei_os_advise_huge(slice->base + whole, whole_end - whole, true);
    }
    if (slatei_os_discard(slice->base + from, to - from) != 0)
        return false;
    *bytes += resident;
    return true;
}
