/* slate/class.h - size <-> class; part of the binary interface.
 *
 * SPDX-License-Identifier: MIT
 *
 * Blocks of up to 512 bytes come in steps of 16 bytes (classes 0 to 31); above that four classes to
 * a doubling, up to 16 KiB (classes 32 to 51).  For every class c:
 *
 *     slate_class_of_(slate_class_size_(c)) == c
 *     slate_class_of_(slate_class_size_(c) + 1) == c + 1      (but for the last)
 *     slate_class_size_(c) % 16 == 0
 */
#ifndef SLATE_CLASS_H
#define SLATE_CLASS_H

#include <stddef.h>
#include <stdint.h>

#define SLATE_CLASSES 52                /* number of size classes */
#define SLATE_STEP_CLASSES 32           /* of these, in steps of 16 bytes */
#define SLATE_STEP_MAX ((size_t)512)    /* largest block of the stepped classes, bytes */
#define SLATE_CLASS_MAX ((size_t)16384) /* largest block of any class, bytes */

/* The class of blocks of `size` bytes; `size` from 0 to SLATE_CLASS_MAX. */
extern inline __attribute__((gnu_inline, always_inline)) unsigned slate_class_of_(size_t size)
{
    if (__builtin_expect(size <= SLATE_STEP_MAX, 1))
        return (unsigned)((size - (size != 0)) >> 4);
    unsigned log2 = 63u - (unsigned)__builtin_clzll((unsigned long long)(size - 1));
    return SLATE_STEP_CLASSES + (log2 - 9) * 4 + (unsigned)(((size - 1) >> (log2 - 2)) & 3);
}

/* The block size of class `index`, in bytes. */
extern inline __attribute__((gnu_inline, always_inline)) size_t slate_class_size_(unsigned index)
{
    if (index < SLATE_STEP_CLASSES)
        return ((size_t)index + 1) * 16;
    unsigned step = index - SLATE_STEP_CLASSES;
    size_t half = (size_t)512 << (step / 4);
    return half + half / 4 * (step % 4 + 1);
}

#endif
