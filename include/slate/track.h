/* slate/track.h - tells AddressSanitizer and Valgrind which bytes are a program's; empty in a
 * normal build.
 *
 * SPDX-License-Identifier: MIT
 *
 * The hooks are on in code built with -fsanitize=address, or with SLATE_VALGRIND defined (which
 * needs Valgrind's headers).  Both the library and the code that inlines from it must be built the
 * same way.  What they show is the use of a block after its end; a write beyond a block's size
 * class is found, one within it is not.
 */
#ifndef SLATE_TRACK_H
#define SLATE_TRACK_H

#if defined(__SANITIZE_ADDRESS__)
#define SLATE_TRACK_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLATE_TRACK_ADDRESS 1
#endif
#endif

/* ALLOC: bytes that become a program's; FREE: a block that ends; END: bytes of a region, a buffer
 * or scratch that end, all of them; OPEN: bytes that are to be copied as they are. */

/* A free block keeps its first 16 bytes readable: other threads' frees are chained through them. */
#define SLATE_TRACK_HEAD_ 16

#if defined(SLATE_TRACK_ADDRESS)
#include <sanitizer/asan_interface.h>
#define SLATE_TRACK_ALLOC_(block, size) __asan_unpoison_memory_region((block), (size))
#define SLATE_TRACK_FREE_(block, size)                                                             \
    __asan_poison_memory_region((char *)(block) + SLATE_TRACK_HEAD_, (size)-SLATE_TRACK_HEAD_)
#define SLATE_TRACK_END_(address, size) __asan_poison_memory_region((address), (size))
#define SLATE_TRACK_OPEN_(address, size) __asan_unpoison_memory_region((address), (size))
#define SLATE_TRACK_ZERO_(block, size) ((void)0)
#elif defined(SLATE_VALGRIND)
#include <valgrind/memcheck.h>
#define SLATE_TRACK_ALLOC_(block, size) ((void)VALGRIND_MAKE_MEM_UNDEFINED((block), (size)))
#define SLATE_TRACK_FREE_(block, size)                                                             \
    ((void)VALGRIND_MAKE_MEM_NOACCESS((char *)(block) + SLATE_TRACK_HEAD_,                         \
                                      (size)-SLATE_TRACK_HEAD_))
#define SLATE_TRACK_END_(address, size) ((void)VALGRIND_MAKE_MEM_NOACCESS((address), (size)))
#define SLATE_TRACK_OPEN_(address, size) ((void)VALGRIND_MAKE_MEM_DEFINED((address), (size)))
/* What slate knows to be zero is not undefined. */
#define SLATE_TRACK_ZERO_(block, size) ((void)VALGRIND_MAKE_MEM_DEFINED((block), (size)))
#else
#define SLATE_TRACK_ALLOC_(block, size) ((void)0)
#define SLATE_TRACK_FREE_(block, size) ((void)0)
#define SLATE_TRACK_END_(address, size) ((void)0)
#define SLATE_TRACK_OPEN_(address, size) ((void)0)
#define SLATE_TRACK_ZERO_(block, size) ((void)0)
#endif

#endif
