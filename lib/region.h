/* lib/region.h - what other parts of the library need of regions.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_REGION_H
#define SLATEI_REGION_H

#include <stdbool.h>
#include <stddef.h>

#define SLATE_NO_INLINE
#include "slate.h"

/* Counts `more` bytes that the region's user holds elsewhere on its behalf, and `less` that it no
 * longer does, as kept.  False, and nothing has changed, when the limit stands in the way; never
 * for more == 0. */
bool slatei_region_charge(struct slate_region *region, size_t less, size_t more);

/* Lets the region's first chunk, and all later ones, have at least `bytes`. */
void slatei_region_first_chunk(struct slate_region *region, size_t bytes);

/* Gives back chunks that nothing is in, until the region keeps at most `most` bytes of chunks or
 * all of them are in use. */
void slatei_region_trim(struct slate_region *region, size_t most);

#endif
