/* lib/stats.h - what the heap holds.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_STATS_H
#define SLATEI_STATS_H

/* Tells that everything is set up, so that there is something to count.  Called once. */
void slatei_stats_start(void);

#endif
