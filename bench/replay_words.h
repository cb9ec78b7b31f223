/* replay_words.h - the decoded form of a trace: what the encoder writes and the replaying children
 * read.
 *
 * SPDX-License-Identifier: MIT
 *
 * A decoded trace is one shared file mapping of 64-bit words: a header, one stream of operations a
 * trace thread (in pieces that jump to each other), and the threads' table.  Common operations are
 * one word, so that reading them disturbs the caches little; what does not fit is a "special" of
 * several words.
 */
#ifndef SLATE_REPLAY_WORDS_H
#define SLATE_REPLAY_WORDS_H

#include "child.h"

#include <stdbool.h>
#include <stdint.h>

/* One-word operations: operation 3 bits, size 20, seed 17, slot 24.  The word behind a WORD_REALLOC
 * has the new block's size, seed and slot. */
enum { WORD_MALLOC, WORD_CALLOC, WORD_FREE, WORD_REALLOC, WORD_SPECIAL };

enum {
    WORD_OPERATION_BITS = 3,
    WORD_SIZE_BITS = 20,
    WORD_SEED_BITS = 17,
    WORD_SLOT_BITS = 24,
    WORD_SIZE_SHIFT = WORD_OPERATION_BITS,
    WORD_SEED_SHIFT = WORD_SIZE_SHIFT + WORD_SIZE_BITS,
    WORD_SLOT_SHIFT = WORD_SEED_SHIFT + WORD_SEED_BITS
};

#define WORD_SIZE_LIMIT ((uint64_t)1 << WORD_SIZE_BITS)
#define WORD_SLOT_LIMIT ((uint64_t)1 << WORD_SLOT_BITS)
#define WORD_SEED_MASK (((uint64_t)1 << WORD_SEED_BITS) - 1)

/* Specials: WORD_SPECIAL 3 bits, kind 5, log2 of the alignment 8.  The words behind it:
 * MALLOC, CALLOC, ALIGNED, FREE: block word, size; REALLOC: both of the old block, both of the new
 * one; START: thread; JUMP: index of the next word; END: none;
 * PHASE, in a trace that is replayed as regions: none. A block word: slot 32 bits, seed 17,
 * flag "another thread ends it". */
enum {
    SPECIAL_MALLOC,
    SPECIAL_CALLOC,
    SPECIAL_ALIGNED,
    SPECIAL_FREE,
    SPECIAL_REALLOC,
    SPECIAL_START,
    SPECIAL_JUMP,
    SPECIAL_END,
    SPECIAL_PHASE
};

enum { SPECIAL_KIND_SHIFT = 3, SPECIAL_ALIGNMENT_SHIFT = 8, BLOCK_SEED_SHIFT = 32 };
#define SPECIAL_KIND_MASK ((uint64_t)31)
#define BLOCK_SHARED ((uint64_t)1 << 63)
#define SPECIAL_WORDS_MAX 5

struct replay_thread_entry {
    uint64_t first_word;
    uint32_t ended_before; /* this many threads of the order of ends have ended before it starts */
    uint32_t ended_order;  /* entry i: the thread that is the i-th to end */
};

struct replay_header {
    uint64_t total_words;
    uint64_t thread_table; /* index of its first word */
    uint64_t slot_count;
    uint64_t events; /* allocation calls */
    uint64_t objects;
    uint64_t peak_live_bytes;
    uint32_t thread_count;
    uint32_t cut_short;
};

/* What a child leaves behind in its result page. */
enum replay_status {
    REPLAY_UNFINISHED,
    REPLAY_DONE,
    REPLAY_CHANGED,       /* a block's words were not what was written */
    REPLAY_NOT_ZERO,      /* a block of calloc was not all zero */
    REPLAY_MISALIGNED,    /* a block is not aligned as asked */
    REPLAY_NO_MEMORY,     /* the allocator returned NULL */
    REPLAY_NOT_PRELOADED, /* malloc is not the library's that was asked for */
    REPLAY_SETUP_FAILED
};

struct replay_result {
    int status;    /* enum replay_status */
    int error;     /* errno of SETUP_FAILED */
    uint64_t word; /* index of the word of the operation that failed */
    uint64_t address;
    uint64_t size;
    double wall_seconds, user_seconds, system_seconds;
    uint64_t resident_kb; /* growth of the peak */
    uint64_t minor_faults;
    uint64_t anonymous_huge_kb;        /* at the end */
    uint64_t page_table_kb;            /* growth at the end */
    char version[CHILD_VERSION_BYTES]; /* the file that malloc comes from, or slate's version */
};

#endif
