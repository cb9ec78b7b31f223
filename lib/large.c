/* lib/large.c - large blocks: runs of the pool, and mappings of their own beyond it.
 *
 * SPDX-License-Identifier: MIT
 */
#include "large.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "lock.h"
#include "os.h"
#include "policy.h"
#include "pool.h"
#include "reserve.h"

/* Blocks from this size on (bytes) begin at a huge page, and move by their page tables: for smaller
 * ones copying is as fast, and moves would split huge pages. */
#define MOVE_LEAST ((size_t)8 << 20)
/* A block gives up its end when that is at least 1/8 of it or so many bytes. */
#define SHRINK_LEAST ((size_t)2 << 20)

/* A mapping of up to this size (bytes) is kept for the next buffer. */
#define SPARE_OWN_MOST ((size_t)32 << 20)

/* ---- mappings of their own: a hash table with linear probing */

struct mapping {
    char *address; /* NULL: empty */
    size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* All guarded by lock.  used * 2 <= slots; slots is 0 or a power of two; used = entries + mappings
 * that are out while they change. */
static struct {
    struct mapping *slot;
    size_t slots;
    size_t used;
    size_t bytes;
} table;

static size_t home_of(const void *address)
{
    return (size_t)(((uintptr_t)address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> 20) &
           (table.slots - 1);
}

static struct mapping *find(const void *address)
{
    if (table.slots == 0)
        return NULL;
    for (size_t i = home_of(address); table.slot[i].address != NULL;
         i = (i + 1) & (table.slots - 1))
        if (table.slot[i].address == address)
            return &table.slot[i];
    return NULL;
}

static void place(char *address, size_t size)
{
    size_t i = home_of(address);
    while (table.slot[i].address != NULL)
        i = (i + 1) & (table.slots - 1);
    table.slot[i] = (struct mapping){address, size};
}

static bool make_room(void)
{
    if ((table.used + 1) * 2 <= table.slots)
        return true;
    size_t old_slots = table.slots;
    struct mapping *old = table.slot;
    size_t page = slatei_os_page_size();
    size_t bytes = old_slots == 0 ? page : old_slots * sizeof *old * 2;
    void *made;
    if (slatei_os_map(bytes, page, &made) != 0)
        return false;
    table.slot = made;
    table.slots = bytes / sizeof *old;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].address != NULL)
            place(old[i].address, old[i].size);
    if (old_slots != 0)
        slatei_os_unmap(old, old_slots * sizeof *old);
    return true;
}

static void forget(struct mapping *found)
{
    size_t mask = table.slots - 1;
    size_t hole = (size_t)(found - table.slot);
    table.used--;
    table.bytes -= found->size;
    /* Moves up what would not be found behind the hole. */
    for (size_t i = (hole + 1) & mask; table.slot[i].address != NULL; i = (i + 1) & mask)
        if (((i - home_of(table.slot[i].address)) & mask) >= ((i - hole) & mask)) {
            table.slot[hole] = table.slot[i];
            hole = i;
        }
    table.slot[hole].address = NULL;
}

/* A mapping that has ended, kept for the next buffer: taking one anew for each costs the kernel
 * more than its contents do (4 KiB appends to 16 MiB: 1,000 ns each, 240 with it).  Guarded by
 * lock; size 0: none. */
static struct mapping spare_own;

static void *map_own(size_t size, size_t alignment)
{
    size_t page = slatei_os_page_size();
    void *address;
    size_t multiple = alignment > page ? alignment : page;
    if (slatei_os_map(size, multiple, &address) != 0) {
        /* What is kept may be all that is left. */
        if (slatei_large_spare_own() == 0)
            return NULL;
        slatei_large_purge();
        if (slatei_os_map(size, multiple, &address) != 0)
            return NULL;
    }
    slatei_os_advise_huge(address, size, slatei_policy_small_end() != SIZE_MAX);
    slatei_lock(&lock);
    bool room = make_room();
    if (room) {
        place(address, size);
        table.used++;
        table.bytes += size;
    }
    slatei_unlock(&lock);
    if (room)
        return address;
    slatei_os_unmap(address, size);
    return NULL;
}

static size_t own_size(const void *block)
{
    slatei_lock(&lock);
    const struct mapping *found = find(block);
    size_t size = found != NULL ? found->size : 0;
    slatei_unlock(&lock);
    return size;
}

/* Whoever gets the addresses next must not find them poisoned. */
static void unmap(struct mapping ended)
{
    SLATE_TRACK_OPEN_(ended.address, ended.size);
    slatei_os_unmap(ended.address, ended.size);
}

static bool unmap_own(void *block)
{
    slatei_lock(&lock);
    struct mapping *found = find(block);
    size_t size = 0;
    if (found != NULL) {
        size = found->size;
        forget(found);
    }
    struct mapping ended = {block, size};
    if (size <= SPARE_OWN_MOST && size > spare_own.size &&
        ((uintptr_t)block & (slatei_os_huge_page_size() - 1)) == 0) {
        SLATE_TRACK_END_(block, size);
        ended = spare_own;
        spare_own = (struct mapping){block, size};
    }
    slatei_unlock(&lock);
    if (ended.size != 0)
        unmap(ended);
    return size != 0;
}

size_t slatei_large_spare_own(void)
{
    slatei_lock(&lock);
    size_t size = spare_own.size;
    slatei_unlock(&lock);
    return size;
}

size_t slatei_large_purge(void)
{
    size_t bytes = 0;
    slatei_lock(&lock);
    struct mapping ended = spare_own;
    spare_own = (struct mapping){NULL, 0};
    slatei_unlock(&lock);
    if (ended.size != 0) {
        slatei_os_resident(ended.address, ended.size, &bytes);
        unmap(ended);
    }
    return bytes;
}

/* ---- blocks that change in size without a copy */

void *slatei_large_alloc_own(size_t size)
{
    size_t huge = slatei_os_huge_page_size(), page = slatei_os_page_size();
    if (size > PTRDIFF_MAX - huge)
        return NULL;
    slatei_lock(&lock);
    struct mapping taken = {NULL, 0};
    if (spare_own.size >= size && make_room()) {
        taken = spare_own;
        spare_own = (struct mapping){NULL, 0};
        place(taken.address, taken.size);
        table.used++;
        table.bytes += taken.size;
    }
    slatei_unlock(&lock);
    if (taken.size != 0) {
        SLATE_TRACK_ALLOC_(taken.address, taken.size);
        return taken.address;
    }
    /* At a huge page, so that moving it later moves whole huge pages. */
    return map_own(slatei_round_up(size, page), huge);
}

/* A mapping is out of the table while it changes: addresses that it leaves may be another's before
 * the call returns.  Its place is kept: `used` and `bytes` count it as it was. */
static size_t take_out(const void *block)
{
    slatei_lock(&lock);
    struct mapping *found = find(block);
    size_t size = found->size;
    forget(found);
    table.used++;
    table.bytes += size;
    slatei_unlock(&lock);
    return size;
}

static void put_back(char *address, size_t old_size, size_t size)
{
    slatei_lock(&lock);
    place(address, size);
    table.bytes += size - old_size;
    slatei_unlock(&lock);
}

/* Returns where it is afterwards, or NULL: nothing changed. */
static char *change(char *block, size_t old, size_t size, size_t *copied)
{
    if (slatei_os_resize(block, old, size) == 0)
        return block;
    void *to;
    size_t huge = slatei_os_huge_page_size();
    if (size < old || slatei_os_map(size, huge, &to) != 0)
        return NULL;
    int error = slatei_os_move_mapping(block, old, to, size);
    if (error == ENOTRECOVERABLE)
        return NULL;
    if (error != 0) {
        slatei_os_advise_huge(to, size, slatei_policy_small_end() != SIZE_MAX);
        memcpy(to, block, old);
        *copied = old;
        slatei_os_unmap(block, old);
    }
    return to;
}

void *slatei_large_resize_own(void *block, size_t size, size_t *copied)
{
    *copied = 0;
    if (size > PTRDIFF_MAX - slatei_os_huge_page_size())
        return NULL;
    size = slatei_round_up(size, slatei_os_page_size());
    size_t old = take_out(block);
    char *changed = size == old ? block : change(block, old, size, copied);
    if (changed == NULL)
        put_back(block, old, old);
    else
        put_back(changed, old, size);
    /* Memcheck holds the end of a mapping that grows as it moves for unmapped. */
    if (changed != NULL && size > old)
        SLATE_TRACK_OPEN_(changed + old, size - old);
    return changed;
}

bool slatei_large_cut_own(void *block, size_t front)
{
    size_t size = take_out(block);
    bool cut = slatei_os_unmap(block, front) == 0;
    size_t gone = cut ? front : 0;
    put_back((char *)block + gone, size, size - gone);
    return cut;
}

/* ---- blocks */

static inline size_t granules_of(size_t size)
{
    return (size + SLATEI_GRANULE - 1) >> SLATE_GRANULE_SHIFT_;
}

static inline bool is_run(const void *block)
{
    return slatei_in_reserve(block) &&
           slatei_reserve.map[slatei_granule_of(block)] == SLATEI_MAP_LARGE;
}

static inline size_t run_length(const void *block)
{
    return slatei_reserve.descriptor[slatei_granule_of(block)].large.length;
}

void *slatei_large_alloc(size_t size, size_t alignment, bool *zero)
{
    if (size > PTRDIFF_MAX - alignment - slatei_os_huge_page_size())
        return NULL;
    size_t huge = slatei_os_huge_page_size();
    size_t run_alignment = size >= MOVE_LEAST && alignment < huge ? huge : alignment;
    if (run_alignment < SLATEI_GRANULE)
        run_alignment = SLATEI_GRANULE;
    size_t granules = granules_of(size);
    if (granules < slatei_reserve.pool_span >> SLATE_GRANULE_SHIFT_) {
        size_t first = slatei_pool_take(granules, run_alignment >> SLATE_GRANULE_SHIFT_,
                                        SLATEI_MAP_LARGE, zero);
        if (first != 0) {
            SLATE_TRACK_ALLOC_(slatei_address_of(first), granules << SLATE_GRANULE_SHIFT_);
            return slatei_address_of(first);
        }
    }
    if (zero != NULL)
        *zero = true;
    return map_own(slatei_round_up(size, slatei_os_page_size()), alignment);
}

/* ---- kept runs */

void *slatei_large_take_spare(struct slatei_arena *arena, size_t size)
{
    size_t granules = granules_of(size);
    if (granules < SLATEI_SPARE_LEAST || granules > SLATEI_SPARE_MOST || arena->spare_granules == 0)
        return NULL;
    uint32_t *spare = arena->spare[granules - SLATEI_SPARE_LEAST];
    for (unsigned i = SLATEI_SPARE_EACH; i-- > 0;)
        if (spare[i] != 0) {
            void *block = slatei_address_of(spare[i]);
            spare[i] = 0;
            arena->spare_granules -= (uint32_t)granules;
            SLATE_TRACK_ALLOC_(block, granules << SLATE_GRANULE_SHIFT_);
            return block;
        }
    return NULL;
}

bool slatei_large_keep_spare(struct slatei_arena *arena, void *block)
{
    if (!is_run(block))
        return false;
    size_t granules = run_length(block);
    if (granules < SLATEI_SPARE_LEAST || granules > SLATEI_SPARE_MOST ||
        arena->spare_granules + granules > SLATEI_SPARE_ALL)
        return false;
    uint32_t *spare = arena->spare[granules - SLATEI_SPARE_LEAST];
    uint32_t first = (uint32_t)slatei_granule_of(block);
    for (unsigned i = 0; i < SLATEI_SPARE_EACH; i++)
        if (spare[i] == first)
            return true; /* freed twice: it is kept once */
    for (unsigned i = 0; i < SLATEI_SPARE_EACH; i++)
        if (spare[i] == 0) {
            spare[i] = first;
            arena->spare_granules += (uint32_t)granules;
            SLATE_TRACK_FREE_(block, granules << SLATE_GRANULE_SHIFT_);
            return true;
        }
    return false;
}

void slatei_large_release_spares(struct slatei_arena *arena)
{
    if (arena->spare_granules == 0)
        return;
    arena->spare_granules = 0;
    slatei_pool_lock();
    for (size_t length = SLATEI_SPARE_LEAST; length <= SLATEI_SPARE_MOST; length++)
        for (unsigned i = 0; i < SLATEI_SPARE_EACH; i++) {
            uint32_t *spare = &arena->spare[length - SLATEI_SPARE_LEAST][i];
            if (*spare != 0)
                slatei_pool_put_locked(*spare, length, false);
            *spare = 0;
        }
    slatei_pool_unlock();
}

size_t slatei_large_usable(const void *block)
{
    if (is_run(block))
        return run_length(block) << SLATE_GRANULE_SHIFT_;
    return slatei_in_reserve(block) ? 0 : own_size(block);
}

bool slatei_large_free(void *block)
{
    if (is_run(block)) {
        SLATE_TRACK_FREE_(block, run_length(block) << SLATE_GRANULE_SHIFT_);
        slatei_pool_put(slatei_granule_of(block), run_length(block), false);
        return true;
    }
    return !slatei_in_reserve(block) && unmap_own(block);
}

bool slatei_large_resize(void *block, size_t size)
{
    if (!is_run(block))
        return size <= own_size(block) && size >= own_size(block) / 2;
    size_t length = run_length(block), wanted = granules_of(size);
    if (size > PTRDIFF_MAX || wanted >= slatei_reserve.pool_span >> SLATE_GRANULE_SHIFT_)
        return false;
    if (wanted < length && (length - wanted) * 8 < length &&
        length - wanted < SHRINK_LEAST >> SLATE_GRANULE_SHIFT_)
        return true;
    if (!slatei_pool_resize(slatei_granule_of(block), length, wanted))
        return false;
    if (wanted > length)
        SLATE_TRACK_ALLOC_((char *)block + (length << SLATE_GRANULE_SHIFT_),
                           (wanted - length) << SLATE_GRANULE_SHIFT_);
    return true;
}

/* How many bytes at the front of a block have to be copied when it moves; the pages of the rest may
 * move.  Moved pages keep the advice of where they came from, so those from the small pages of the
 * pool would stay on small pages for ever. */
static size_t front_to_copy(const char *from, const char *to, size_t size)
{
    if (!slatei_in_reserve(from) || !slatei_in_reserve(to))
        return slatei_in_reserve(from) == slatei_in_reserve(to) ? 0 : size;
    size_t small_end = slatei_policy_small_end();
    size_t source = (size_t)(from - slatei_reserve.base),
           target = (size_t)(to - slatei_reserve.base);
    if (source + size <= small_end && target + size <= small_end)
        return 0;
    if (target < small_end || (source - target) % slatei_os_huge_page_size() != 0)
        return size;
    size_t front = source < small_end ? small_end - source : 0;
    return front < size ? front : size;
}

void *slatei_large_move(void *block, size_t size)
{
    size_t old = slatei_large_usable(block);
    if (old < MOVE_LEAST || size < old)
        return NULL;
    char *from = block, *to = slatei_large_alloc(size, SLATEI_GRANULE, NULL);
    if (to == NULL)
        return NULL;
    size_t front = front_to_copy(from, to, old);
    int error = front < old ? slatei_os_move(from + front, to + front, old - front) : 0;
    if (error == ENOTRECOVERABLE)
        return NULL; /* the place is lost, but nothing in it was in use */
    if (error != 0) {
        size_t small_end = slatei_policy_small_end(), huge_from = is_run(to) ? small_end : 0;
        slatei_os_advise_huge(to + front, old - front,
                              small_end != SIZE_MAX &&
                                  (size_t)(to + front - slatei_reserve.base) >= huge_from);
        front = old;
    }
    memcpy(to, from, front);
    if (!is_run(block))
        unmap_own(block);
    else if (front == 0)
        slatei_pool_put(slatei_granule_of(block), run_length(block), true);
    else
        slatei_large_free(block);
    return to;
}

void slatei_large_count(size_t *bytes, size_t *blocks, size_t *resident)
{
    *resident = 0;
    slatei_lock(&lock);
    *bytes = table.bytes;
    *blocks = table.used;
    for (size_t i = 0; i < table.slots; i++) {
        size_t of_block = 0;
        if (table.slot[i].address != NULL)
            slatei_os_resident(table.slot[i].address, table.slot[i].size, &of_block);
        *resident += of_block;
    }
    slatei_unlock(&lock);
}

void slatei_large_lock(void) { slatei_lock(&lock); }

void slatei_large_unlock(void) { slatei_unlock(&lock); }
