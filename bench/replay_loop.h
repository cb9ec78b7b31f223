/* replay_loop.h - the loop that replays one stream of operations; included once for each kind of
 * allocator.
 *
 * SPDX-License-Identifier: MIT
 *
 * The includer defines REPLAY_NAME (the function's name), ALLOCATE(size), ALLOCATE_ZERO(size),
 * ALLOCATE_ALIGNED(log2, size), REALLOCATE(block, size) or REALLOCATE_FROM(block, old size, size),
 * FREE(block), and REPLAY_FLOOR as 1 where
 * blocks are no memory of their own: then the same words are written and read, but nothing is
 * expected of them.
 *
 * A block's bytes: its seed's low byte everywhere, the seed's whole word in the first eight and in
 * the last eight.
 */
#include "replay_child.h"

#include <stdlib.h>
#include <string.h>

#if REPLAY_FLOOR
/* The part of a block that the rotating buffer has room for. */
#define SPAN(size) ((size) < FLOOR_BLOCK_BYTES ? (size) : FLOOR_BLOCK_BYTES)
#else
#define SPAN(size) (size)
#endif

/* What regions have beside: a beginning, the end of a phase, and an end. */
#ifndef PHASE_BEGIN
#define PHASE_BEGIN(thread) ((void)0)
#define PHASE_END(thread) ((void)0)
#define PHASES_OVER(thread) ((void)0)
#endif
#ifndef REALLOCATE_FROM
#define REALLOCATE_FROM(block, old_size, size) REALLOCATE(block, size)
#endif

#define LIKELY(condition) __builtin_expect(!!(condition), 1)

/* The compiler must know nothing of where a block came from: it could take a check for needless. */
#define OPAQUE(pointer) __asm__("" : "+r"(pointer))

static inline uint64_t stamp_of(uint64_t seed)
{
    return seed * UINT64_C(0x9e3779b97f4a7c15) ^ UINT64_C(0x5851f42d4c957f2d);
}

static inline void store_word(unsigned char *at, uint64_t word) { memcpy(at, &word, sizeof word); }

static inline uint64_t load_word(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static __attribute__((noinline)) void fill_large(unsigned char *at, int byte, size_t size)
{
#if REPLAY_FLOOR
    for (; size > FLOOR_BLOCK_BYTES; size -= FLOOR_BLOCK_BYTES)
        memset(at, byte, FLOOR_BLOCK_BYTES);
#endif
    memset(at, byte, size);
}

static inline void fill(unsigned char *at, int byte, size_t size)
{
    if (LIKELY(size < FLOOR_BLOCK_BYTES))
        memset(at, byte, size);
    else
        fill_large(at, byte, size);
}

/* Writes the first and the last word of a block, or what it has of them. */
static inline void stamp_ends(unsigned char *block, size_t size, uint64_t stamp)
{
    if (LIKELY(size >= 8)) {
        store_word(block, stamp);
        store_word(block + SPAN(size) - 8, stamp);
    } else if (size > 0) {
        block[0] = block[size - 1] = (unsigned char)stamp;
    }
}

/* Whether first and last word are what stamp_ends wrote.  Where the two overlap the last one was
 * written last. */
static inline bool ends_are(const unsigned char *block, size_t size, uint64_t stamp)
{
    if (LIKELY(size >= 8)) {
        uint64_t difference = load_word(block + SPAN(size) - 8) ^ stamp;
        if (size >= 16)
            difference |= load_word(block) ^ stamp;
        return difference == 0;
    }
    return size == 0 || (unsigned char)(block[size - 1] ^ (unsigned char)stamp) == 0;
}

static inline bool ends_are_zero(const unsigned char *block, size_t size)
{
    if (LIKELY(size >= 8))
        return (load_word(block) | load_word(block + SPAN(size) - 8)) == 0;
    return size == 0 || (block[0] | block[size - 1]) == 0;
}

#if !REPLAY_FLOOR
/* With --check: whether the first `kept` bytes of a block of `size` are all as they were written.
 */
static __attribute__((noinline)) bool bytes_are(const unsigned char *block, size_t size,
                                                size_t kept, uint64_t stamp)
{
    unsigned char word[8];
    store_word(word, stamp);
    for (size_t i = 0; i < kept; i++) {
        unsigned char expected = (unsigned char)stamp;
        if (size >= 8 && i >= size - 8)
            expected = word[i - (size - 8)];
        else if (size >= 8 && i < 8)
            expected = word[i];
        if (block[i] != expected)
            return false;
    }
    return true;
}

static __attribute__((noinline)) bool bytes_are_zero(const unsigned char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != 0)
            return false;
    return true;
}
#endif

/* A fault ends the run; the floor has nothing to be at fault and only sees to it that the words are
 * loaded. */
static inline void expect(struct replay_thread *thread, bool good, int status, const uint64_t *at,
                          const void *block, size_t size)
{
#if REPLAY_FLOOR
    (void)status, (void)at, (void)block, (void)size;
    thread->sink += good;
#else
    if (!LIKELY(good))
        replay_fail(thread, status, at, block, size);
#endif
}

static inline void write_block(struct replay_thread *thread, const uint64_t *at,
                               unsigned char *block, size_t size, uint64_t stamp)
{
    if (!LIKELY(block))
        replay_fail(thread, REPLAY_NO_MEMORY, at, NULL, size);
    fill(block, (int)(stamp & 0xff), size);
    stamp_ends(block, size, stamp);
}

static inline void check_zero(struct replay_thread *thread, const uint64_t *at,
                              const unsigned char *block, size_t size, bool check_all)
{
    if (!LIKELY(block))
        replay_fail(thread, REPLAY_NO_MEMORY, at, NULL, size);
    expect(thread, ends_are_zero(block, size), REPLAY_NOT_ZERO, at, block, size);
#if !REPLAY_FLOOR
    if (check_all)
        expect(thread, bytes_are_zero(block, size), REPLAY_NOT_ZERO, at, block, size);
#else
    (void)check_all;
#endif
}

static inline void check_block(struct replay_thread *thread, const uint64_t *at,
                               const unsigned char *block, size_t size, uint64_t stamp,
                               bool check_all)
{
    expect(thread, ends_are(block, size, stamp), REPLAY_CHANGED, at, block, size);
#if !REPLAY_FLOOR
    if (check_all)
        expect(thread, bytes_are(block, size, size, stamp), REPLAY_CHANGED, at, block, size);
#else
    (void)check_all;
#endif
}

/* What realloc returned: the old contents must be there, the grown part is written, the ends become
 * the new object's. */
static inline void rewrite_block(struct replay_thread *thread, const uint64_t *at,
                                 unsigned char *block, size_t old_size, uint64_t old_stamp,
                                 size_t size, uint64_t stamp, bool check_all)
{
    if (!LIKELY(block))
        replay_fail(thread, REPLAY_NO_MEMORY, at, NULL, size);
    if (size >= old_size)
        expect(thread, ends_are(block, old_size, old_stamp), REPLAY_CHANGED, at, block, size);
    else if (size >= 8 && old_size >= 16)
        expect(thread, load_word(block) == old_stamp, REPLAY_CHANGED, at, block, size);
#if !REPLAY_FLOOR
    if (check_all) {
        size_t kept = size < old_size ? size : old_size;
        expect(thread, bytes_are(block, old_size, kept, old_stamp), REPLAY_CHANGED, at, block,
               size);
        old_size = 0;
    }
#else
    (void)check_all;
#endif
    if (size > old_size) {
#if REPLAY_FLOOR
        fill(block, (int)(stamp & 0xff), size - old_size);
#else
        fill(block + old_size, (int)(stamp & 0xff), size - old_size);
#endif
    }
    stamp_ends(block, size, stamp);
}

/* ---- specials: large sizes, alignments, blocks that go from thread to thread ---- */

static void store_slot(struct replay_thread *thread, uint64_t block_word, void *block)
{
    void **slot = &thread->slots[(uint32_t)block_word];
    if (block_word & BLOCK_SHARED)
        __atomic_store_n(slot, block, __ATOMIC_RELEASE); /* pairs with load_slot's acquire */
    else
        *slot = block;
}

static void *load_slot(struct replay_thread *thread, uint64_t block_word)
{
    void **slot = &thread->slots[(uint32_t)block_word];
    if (!(block_word & BLOCK_SHARED))
        return *slot;
    void *block;
    while (!(block = __atomic_load_n(slot, __ATOMIC_ACQUIRE)))
        replay_wait();
    return block;
}

static inline uint64_t block_stamp(uint64_t block_word)
{
    return stamp_of(block_word >> BLOCK_SEED_SHIFT & WORD_SEED_MASK);
}

/* Returns where the stream goes on, or NULL at its end. */
static __attribute__((noinline)) const uint64_t *replay_special(struct replay_thread *thread,
                                                                const uint64_t *at, bool check_all)
{
    uint64_t word = at[0];
    unsigned char *block;
    size_t size;
    switch (word >> SPECIAL_KIND_SHIFT & SPECIAL_KIND_MASK) {
    case SPECIAL_MALLOC:
        size = at[2];
        block = ALLOCATE(size);
        OPAQUE(block);
        write_block(thread, at, block, size, block_stamp(at[1]));
        store_slot(thread, at[1], block);
        return at + 3;
    case SPECIAL_CALLOC:
        size = at[2];
        block = ALLOCATE_ZERO(size);
        OPAQUE(block);
        check_zero(thread, at, block, size, check_all);
        write_block(thread, at, block, size, block_stamp(at[1]));
        store_slot(thread, at[1], block);
        return at + 3;
    case SPECIAL_ALIGNED: {
        unsigned log2_alignment = word >> SPECIAL_ALIGNMENT_SHIFT & 0xff;
        size = at[2];
        block = ALLOCATE_ALIGNED(log2_alignment, size);
        OPAQUE(block);
        write_block(thread, at, block, size, block_stamp(at[1]));
        expect(thread, ((uintptr_t)block & (((uintptr_t)1 << log2_alignment) - 1)) == 0,
               REPLAY_MISALIGNED, at, block, size);
        store_slot(thread, at[1], block);
        return at + 3;
    }
    case SPECIAL_FREE:
        size = at[2];
        block = load_slot(thread, at[1]);
        check_block(thread, at, block, size, block_stamp(at[1]), check_all);
        FREE(block);
        return at + 3;
    case SPECIAL_REALLOC:
        size = at[4];
        block = load_slot(thread, at[1]);
        block = REALLOCATE_FROM(block, at[2], size);
        OPAQUE(block);
        rewrite_block(thread, at, block, at[2], block_stamp(at[1]), size, block_stamp(at[3]),
                      check_all);
        store_slot(thread, at[3], block);
        return at + 5;
    case SPECIAL_START:
        replay_start_thread(thread, (uint32_t)at[1]);
        return at + 2;
    case SPECIAL_JUMP:
        return thread->words + at[1];
    case SPECIAL_PHASE:
        PHASE_END(thread);
        return at + 1;
    default:
        return NULL;
    }
}

/* ---- the loop ---- */

static inline size_t word_size(uint64_t word)
{
    return word >> WORD_SIZE_SHIFT & (WORD_SIZE_LIMIT - 1);
}

static inline uint64_t word_stamp(uint64_t word)
{
    return stamp_of(word >> WORD_SEED_SHIFT & WORD_SEED_MASK);
}

static inline __attribute__((always_inline)) void replay_stream(struct replay_thread *thread,
                                                                bool check_all)
{
    void **const slots = thread->slots;
    const uint64_t *at = thread->first;
    for (;;) {
        uint64_t word = *at;
        void **slot = &slots[word >> WORD_SLOT_SHIFT];
        size_t size = word_size(word);
        uint64_t stamp = word_stamp(word);
        unsigned char *block;
        switch (word & ((1 << WORD_OPERATION_BITS) - 1)) {
        case WORD_MALLOC:
            block = ALLOCATE(size);
            OPAQUE(block);
            write_block(thread, at, block, size, stamp);
            *slot = block;
            at++;
            break;
        case WORD_CALLOC:
            block = ALLOCATE_ZERO(size);
            OPAQUE(block);
            check_zero(thread, at, block, size, check_all);
            write_block(thread, at, block, size, stamp);
            *slot = block;
            at++;
            break;
        case WORD_FREE:
            block = *slot;
            check_block(thread, at, block, size, stamp, check_all);
            FREE(block);
            at++;
            break;
        case WORD_REALLOC: {
            uint64_t next = at[1];
            size_t new_size = word_size(next);
            block = REALLOCATE_FROM(*slot, size, new_size);
            OPAQUE(block);
            rewrite_block(thread, at, block, size, stamp, new_size, word_stamp(next), check_all);
            slots[next >> WORD_SLOT_SHIFT] = block;
            at += 2;
            break;
        }
        default:
            at = replay_special(thread, at, check_all);
            if (!at)
                return;
        }
    }
}

/* A function of its own: the loop that is measured shares nothing with it. */
static __attribute__((noinline, cold)) void replay_checked(struct replay_thread *thread)
{
    replay_stream(thread, true);
}

void REPLAY_NAME(struct replay_thread *thread)
{
    PHASE_BEGIN(thread);
    if (thread->check_all)
        replay_checked(thread);
    else
        replay_stream(thread, false);
    PHASES_OVER(thread);
}
