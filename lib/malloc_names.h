/* lib/malloc_names.h - what libslate-malloc's functions are called.
 *
 * SPDX-License-Identifier: MIT
 *
 * LIBC(name) is name itself.  With SLATEI_MALLOC_PREFIX defined it is slatei_libc_name: so a test
 * can call the functions beside the C library's own.
 */
#ifndef SLATEI_MALLOC_NAMES_H
#define SLATEI_MALLOC_NAMES_H

#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

#ifdef SLATEI_MALLOC_PREFIX
#define LIBC(name) slatei_libc_##name
#define LINKED_AS(name) "slatei_libc_" name
#else
#define LIBC(name) name
#define LINKED_AS(name) name
#endif

#define SLATEI_EXPORT __attribute__((visibility("default")))

/* A further name of a function.  GCC wants it to have its target's attributes. */
#if __has_attribute(copy)
#define SLATEI_LIKE(name) copy(LIBC(name)), alias(LINKED_AS(#name))
#else
#define SLATEI_LIKE(name) alias(LINKED_AS(#name))
#endif
#define SLATEI_ALSO(type, alias_name, name, ...)                                                   \
    SLATEI_EXPORT type LIBC(alias_name)(__VA_ARGS__) __attribute__((SLATEI_LIKE(name)))

SLATEI_EXPORT void *LIBC(malloc)(size_t size);
SLATEI_EXPORT void *LIBC(calloc)(size_t count, size_t size);
SLATEI_EXPORT void *LIBC(realloc)(void *block, size_t size);
SLATEI_EXPORT void *LIBC(reallocarray)(void *block, size_t count, size_t size);
SLATEI_EXPORT void LIBC(free)(void *block);
SLATEI_EXPORT void LIBC(cfree)(void *block);
SLATEI_EXPORT void LIBC(free_sized)(void *block, size_t size);
SLATEI_EXPORT void LIBC(free_aligned_sized)(void *block, size_t alignment, size_t size);
SLATEI_EXPORT int LIBC(posix_memalign)(void **block, size_t alignment, size_t size);
SLATEI_EXPORT void *LIBC(aligned_alloc)(size_t alignment, size_t size);
SLATEI_EXPORT void *LIBC(memalign)(size_t alignment, size_t size);
SLATEI_EXPORT void *LIBC(valloc)(size_t size);
SLATEI_EXPORT void *LIBC(pvalloc)(size_t size);
SLATEI_EXPORT size_t LIBC(malloc_usable_size)(void *block);
SLATEI_EXPORT int LIBC(malloc_trim)(size_t pad);
SLATEI_EXPORT int LIBC(mallopt)(int parameter, int value);
SLATEI_EXPORT struct mallinfo LIBC(mallinfo)(void);
SLATEI_EXPORT struct mallinfo2 LIBC(mallinfo2)(void);
SLATEI_EXPORT int LIBC(malloc_info)(int options, FILE *stream);
SLATEI_EXPORT void LIBC(malloc_stats)(void);

#endif
