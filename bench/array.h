/* array.h - arrays that grow, for the bench programs.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_ARRAY_H
#define SLATE_ARRAY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `wanted` elements of `size` bytes in *array, at least doubling it; what is new is
 * zero.  `array` is the address of a pointer.  Returns 0; or -1 when memory ran out, and then
 * nothing has changed. */
static inline int array_grow(void *array, uint64_t *room, uint64_t wanted, size_t size)
{
    if (wanted <= *room)
        return 0;
    uint64_t larger = *room * 2 > wanted ? *room * 2 : wanted + 1024;
    void *old;
    memcpy(&old, array, sizeof old);
    char *grown = realloc(old, larger * size);
    if (!grown)
        return -1;
    memset(grown + *room * size, 0, (larger - *room) * size);
    memcpy(array, &grown, sizeof grown);
    *room = larger;
    return 0;
}

#endif
