/* lib/policy.h - page policy: the bump limit of a slice, and the pages under it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_POLICY_H
#define SLATEI_POLICY_H

#include <stdbool.h>
#include <stddef.h>

/* A slice of the reservation, carved upwards: the pool, or one class of one arena.  Changed by its
 * owner only: the pool's lock, or the arena's thread. top <= limit <= span;  base and span are
 * multiples of a huge page bytes [0, limit) are usable; [0, switch point) of them on small pages,
 * the rest on huge ones */
struct slatei_slice {
    char *base;
    size_t span;
    size_t top;   /* bump pointer: bytes carved */
    size_t limit; /* bump limit: bytes that can be carved without asking */
};

/* Raises the limit to at least `top` bytes, first to the switch point and then beyond it.  The
 * caller sees to top <= span.  Returns 0, or an error number and then the slice is as it was. */
int slatei_policy_raise(struct slatei_slice *slice, size_t top);

/* Where small pages end in any slice: 0, the switch point in whole huge pages, or SIZE_MAX. */
size_t slatei_policy_small_end(void);

/* For a new large block in bytes [from, to) of a slice, never used before: if it is on small pages
 * and not too large to be filled soon, brings them in together. */
void slatei_policy_populate(const struct slatei_slice *slice, size_t from, size_t to);

/* Gives back what can be given back of the free bytes [from, to) of a slice: whole pages below the
 * switch point (nothing there under `shared`), whole huge pages above it.  Returns the bytes given
 * back; when that is to - from, all of the range is zero. */
size_t slatei_policy_give_back(const struct slatei_slice *slice, size_t from, size_t to);

/* Gives back all of the free bytes [from, to) of a slice, which are whole pages.  A huge page that
 * is only partly given back is told to stay on small pages, or the kernel would fill it up again in
 * the background.  Adds to `bytes` what was in memory.  Returns whether all of the range is zero
 * now. */
bool slatei_policy_purge(const struct slatei_slice *slice, size_t from, size_t to, size_t *bytes);

#endif
