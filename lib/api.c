/* lib/api.c - the public functions: start-up, slow paths, and real symbols for the inline names.
 *
 * SPDX-License-Identifier: MIT
 */
#include "api.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "arena.h"
#include "debug.h"
#include "large.h"
#include "lock.h"
#include "os.h"
#include "other.h"
#include "pool.h"
#include "report.h"
#include "reserve.h"
#include "slice.h"
#include "stats.h"
#include "tunables.h"

/* ---- start-up */

/* DECLINED: another malloc serves the process. */
enum start { NOT_STARTED, STARTED, FAILED, DECLINED };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
/* Stored with release under start_lock once everything is set up; loaded with acquire in start. */
static atomic_int start_state;

static void before_fork(void)
{
    if (slatei_arena_owned())
        slatei_slice_drain((struct slatei_arena *)(void *)slate_self_);
    slatei_lock(&start_lock);
    slatei_arena_before_fork();
    slatei_large_lock();
    slatei_pool_lock();
    atomic_store_explicit(&slatei_forking, (uintptr_t)pthread_self(), memory_order_relaxed);
}

static void after_fork(bool child)
{
    atomic_store_explicit(&slatei_forking, 0, memory_order_relaxed);
    slatei_pool_unlock();
    slatei_large_unlock();
    slatei_arena_after_fork(child);
    slatei_unlock(&start_lock);
}

static void after_fork_in_parent(void) { after_fork(false); }

static void after_fork_in_child(void) { after_fork(true); }

static const struct slatei_fork_handlers fork_handlers = {
    .before = before_fork,
    .in_parent = after_fork_in_parent,
    .in_child = after_fork_in_child,
};

static int set_up(void)
{
    slatei_tunables_start();
    slatei_os_start();
    if (slatei_reserve_start() != 0)
        return FAILED;
    slatei_pool_start();
    slatei_slice_start();
    if (slatei_arena_start(&slatei_slice_hooks, &fork_handlers) != 0)
        return FAILED;
    slatei_stats_start();
    return STARTED;
}

/* For threads without an arena: sets everything up at the first allocation of the process.  False
 * when there is no memory to be had of slate. */
static bool start(void)
{
    int state = atomic_load_explicit(&start_state, memory_order_acquire);
    bool first = false;
    if (__builtin_expect(state == NOT_STARTED, 0)) {
        /* First of all: a sanitizer that is not ready yet may have put itself in the place of the
         * C library's locks too. */
        if (slatei_other_rules != NULL && slatei_other_rules()) {
            atomic_store_explicit(&start_state, DECLINED, memory_order_release);
            return false;
        }
        int saved = errno;
        slatei_lock(&start_lock);
        state = atomic_load_explicit(&start_state, memory_order_relaxed);
        if (state == NOT_STARTED) {
            first = true;
            state = set_up();
            atomic_store_explicit(&start_state, state, memory_order_release);
        }
        slatei_unlock(&start_lock);
        errno = saved;
    }
    /* The first thread has the heap to itself. */
    if (state == STARTED && !first)
        slatei_arena_guard_forks();
    return state == STARTED;
}

static bool declined(void)
{
    return atomic_load_explicit(&start_state, memory_order_relaxed) == DECLINED;
}

bool slatei_started(void)
{
    return atomic_load_explicit(&start_state, memory_order_acquire) == STARTED;
}

bool slatei_start(void) { return slatei_arena_owned() || start(); }

int slate_tune(const char *name, const char *value)
{
    slatei_lock(&start_lock);
    int error = EBUSY;
    if (atomic_load_explicit(&start_state, memory_order_relaxed) == NOT_STARTED)
        error = slatei_tunables_set(name, value);
    slatei_unlock(&start_lock);
    return error;
}

/* ---- slow paths */

static void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* From this size on (bytes) a block is worth a look through the stacks before the heap grows for
 * it.
 */
#define ROOM_LEAST ((size_t)64 << 10)
/* Fewer blocks than that on the stacks are not worth it. */
#define ROOM_BLOCKS 32

/* What the arena holds back may be what parts the free runs of the pool: a few free blocks on its
 * stacks pin their units. And foreign frees must not wait for ever behind a program that asks only
 * for large blocks. */
static void make_room(struct slatei_arena *arena, size_t size)
{
    if (size >= ROOM_LEAST && slatei_slice_stacked(arena) >= ROOM_BLOCKS &&
        !slatei_pool_fits((size + SLATEI_GRANULE - 1) >> SLATE_GRANULE_SHIFT_))
        slatei_slice_flush_all(arena);
    else
        slatei_slice_drain(arena);
}

static void *allocate_elsewhere(size_t alignment, size_t size)
{
    void *block = declined() ? slatei_other_alloc(alignment, size) : NULL;
    return block != NULL ? block : out_of_memory();
}

/* With --enable-debug an arena is looked over once in so many slow paths. */
#define DEBUG_EACH 16

static void *allocate(size_t size, bool *zero)
{
    if (!slatei_arena_owned() && !start()) {
        *zero = false;
        return allocate_elsewhere(1, size);
    }
    struct slatei_arena *arena = slatei_arena_enter();
    if (size > SLATE_CLASS_MAX) {
        void *block = NULL;
        if (arena != NULL) {
            block = slatei_large_take_spare(arena, size);
            if (block == NULL)
                make_room(arena, size);
            slatei_arena_leave(arena);
        }
        *zero = false;
        if (block == NULL)
            block = slatei_large_alloc(size, SLATEI_GRANULE, zero);
        return block != NULL ? block : out_of_memory();
    }
    if (arena == NULL)
        return out_of_memory();
    unsigned class_index = slate_class_of_(size);
    if (arena->slow % DEBUG_EACH == 0)
        slatei_debug_arena(arena);
    void *block = slatei_slice_alloc_zero(arena, class_index, zero);
    slatei_arena_leave(arena);
    if (block == NULL && slatei_large_spare_own() != 0) {
        /* What is kept may be all that is left. */
        slatei_large_purge();
        return allocate(size, zero);
    }
    if (block == NULL)
        return out_of_memory();
    SLATE_TRACK_ALLOC_(block, slate_class_size_(class_index));
    return block;
}

void *slate_alloc_slow_(size_t size)
{
    bool zero;
    return allocate(size, &zero);
}

void *slate_zalloc_any_(size_t size)
{
    bool zero = false;
    void *block;
    if (size <= SLATE_STEP_MAX) {
        block = slate_alloc_inline_(size);
        if (SLATE_LIKELY_(block != NULL))
            slate_clear_(block, size);
        return block;
    }
    block = allocate(size, &zero);
    if (block != NULL && zero)
        SLATE_TRACK_ZERO_(block, size);
    else if (block != NULL)
        memset(block, 0, size);
    return block;
}

/* The class of a small block of any arena; SLATE_CLASSES or more for everything else. */
static inline unsigned class_of_block(const void *block)
{
    if (!slatei_in_reserve(block))
        return SLATE_CLASSES;
    return (slatei_reserve.map[slatei_granule_of(block)] & SLATEI_MAP_MASK) -
           (unsigned)SLATEI_MAP_CLASS;
}

/* One foreign free in so many looks whether the owner is parked: then nobody else will take its
 * stack in. */
#define ADOPT_SHIFT 7

static void free_foreign(void *block)
{
    unsigned number = slatei_reserve.map[slatei_granule_of(block)] >> SLATE_MAP_SHIFT_;
    struct slatei_arena *owner = slatei_arena_of(number);
    slatei_arena_push_foreign(owner, block);
    uint32_t mixed = (uint32_t)((uintptr_t)block >> 4) * UINT32_C(2654435761);
    if (mixed >> (32 - ADOPT_SHIFT) == 0 && slatei_arena_adopt(owner))
        slatei_arena_park(owner);
}

/* So often at most a process tells of blocks that are none. */
#define TELL_MOST 8

/* Leaves a block alone that is not known: freed twice, or never slate's. */
static void tell_of_unknown(const char *doing, const void *block)
{
    static atomic_uint told;
    if (atomic_load_explicit(&told, memory_order_relaxed) >= TELL_MOST ||
        atomic_fetch_add_explicit(&told, 1, memory_order_relaxed) >= TELL_MOST)
        return;
    struct slatei_line line = {0};
    slatei_line_text(&line, "slate: ");
    slatei_line_text(&line, doing);
    slatei_line_address(&line, block);
    slatei_line_text(&line,
                     ", which is no block (freed already, or another malloc's): it is left alone");
    slatei_line_print(&line);
}

static __attribute__((noinline)) void free_unknown(void *block)
{
    if (slatei_other_free == NULL || !slatei_other_free(block))
        tell_of_unknown("free of ", block);
}

static __attribute__((noinline)) void *realloc_unknown(void *block, size_t size)
{
    void *moved = NULL;
    if (slatei_other_realloc == NULL || !slatei_other_realloc(block, size, &moved)) {
        tell_of_unknown("realloc of ", block);
        errno = EINVAL;
    }
    return moved;
}

void slate_free_slow_(void *block)
{
    if (block == NULL)
        return;
    slatei_debug_block(block);
    if (!slatei_started()) {
        free_unknown(block);
        return;
    }
    if (!slatei_arena_owned())
        slatei_arena_guard_forks();
    unsigned class_index = class_of_block(block);
    if (class_index < SLATE_CLASSES) {
        SLATE_TRACK_FREE_(block, slate_class_size_(class_index));
        free_foreign(block);
    } else if (!slatei_arena_owned() ||
               !slatei_large_keep_spare((struct slatei_arena *)(void *)slate_self_, block)) {
        if (!slatei_large_free(block))
            free_unknown(block);
    }
}

void slate_flush_(struct slate_entry_ *entry)
{
    struct slatei_arena *arena = (struct slatei_arena *)(void *)slate_self_;
    slatei_slice_flush(arena, (unsigned)(entry - arena->front.entry));
}

size_t slate_usable_size_slow_(const void *block)
{
    if (block == NULL)
        return 0;
    unsigned class_index = class_of_block(block);
    if (class_index < SLATE_CLASSES)
        return slate_class_size_(class_index);
    if (!slatei_arena_owned() && slatei_started())
        slatei_arena_guard_forks();
    size_t size = slatei_large_usable(block);
    if (size == 0 && slatei_other_usable != NULL)
        slatei_other_usable(block, &size);
    return size;
}

static __attribute__((noinline)) void *realloc_slow(void *block, size_t size)
{
    if (block == NULL)
        return slate_alloc_inline_(size);
    bool small = class_of_block(block) < SLATE_CLASSES;
    size_t room = small ? slate_usable_size_slow_(block) : slatei_large_usable(block);
    if (room == 0)
        return realloc_unknown(block, size);
    if (small) {
        if (size <= room && size * 2 >= room)
            return block;
    } else if (size > SLATE_CLASS_MAX) {
        if (slatei_large_resize(block, size))
            return block;
        void *moved = slatei_large_move(block, size);
        if (moved != NULL)
            return moved;
    }
    void *moved = slate_alloc_inline_(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, size < room ? size : room);
    slate_free_inline_(block);
    return moved;
}

/* 16 bytes at once, which for at most 512 is faster than a call of memcpy; the empty asm keeps the
 * compiler from making one. */
static inline void copy_lines(void *to, const void *from, size_t size)
{
    slate_line_ *line = (slate_line_ *)to;
    slate_line_ *end = line + (size + 15) / 16;
    const slate_line_ *source = (const slate_line_ *)from;
    for (; line < end; line++, source++) {
        __asm__("" : "+r"(line));
        *line = *source;
    }
}

/* To the next class of small blocks: one load of the map, a pop, moves of 16 bytes, a push. */
void *slate_realloc(void *block, size_t size)
{
    struct slate_arena_ *arena = slate_self_;
    uintptr_t offset = (uintptr_t)block - arena->base;
    if (SLATE_LIKELY_(offset < arena->span)) {
        uint64_t index = (uint32_t)arena->map[offset >> SLATE_GRANULE_SHIFT_] - arena->tag;
        if (SLATE_LIKELY_(index < SLATE_STEP_CLASSES && size <= SLATE_STEP_MAX)) {
            struct slate_entry_ *entry = &arena->entry[index];
            size_t room = entry->size;
            /* Shrinking to no less than half stays in place. */
            if (size <= room && size * 2 >= room)
                return block;
            void *moved = slate_alloc_inline_(size);
            if (SLATE_UNLIKELY_(moved == NULL))
                return NULL;
            copy_lines(moved, block, size < room ? size : room);
            slate_push_(arena, index, block);
            return moved;
        }
    }
    return realloc_slow(block, size);
}

#define ALIGNMENT_MOST ((size_t)1 << 30)

void *slate_aligned_alloc(size_t alignment, size_t size)
{
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > ALIGNMENT_MOST) {
        errno = EINVAL;
        return NULL;
    }
    if (alignment <= 16)
        return slate_alloc_inline_(size);
    if (!slatei_arena_owned() && !start())
        return allocate_elsewhere(alignment, size);
    /* A unit begins at a granule, so blocks of a class whose size is a multiple of the alignment
     * have it. */
    if (alignment <= SLATEI_GRANULE && size <= SLATE_CLASS_MAX) {
        size_t rounded = size == 0 ? alignment : slatei_round_up(size, alignment);
        while (rounded <= SLATE_CLASS_MAX) {
            size_t of_class = slate_class_size_(slate_class_of_(rounded));
            if (of_class % alignment == 0)
                return slate_alloc_inline_(rounded);
            rounded = slatei_round_up(of_class + 1, alignment);
        }
    }
    void *block = slatei_large_alloc(size == 0 ? 1 : size, alignment, NULL);
    return block != NULL ? block : out_of_memory();
}

size_t slate_purge(void)
{
    size_t bytes = 0;
    if (!slatei_started())
        return 0;
    if (!slatei_arena_owned())
        slatei_arena_guard_forks();
    slatei_slice_settle(&bytes);
    return bytes + slatei_large_purge() + slatei_pool_purge();
}

/* ---- real symbols */

void *slate_alloc(size_t size) { return slate_alloc_inline_(size); }

void *slate_zalloc(size_t size) { return slate_zalloc_inline_(size); }

void slate_free(void *block) { slate_free_inline_(block); }

void slate_free_sized(void *block, size_t size)
{
    (void)size;
    slate_free_inline_(block);
}

size_t slate_usable_size(const void *block) { return slate_usable_size_inline_(block); }

const char *slate_version(void) { return SLATE_VERSION; }
