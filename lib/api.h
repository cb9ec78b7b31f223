/* lib/api.h - whether there is a heap, for what stands on it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_API_H
#define SLATEI_API_H

#include <stdbool.h>

/* Whether the heap was set up. */
bool slatei_started(void);

/* Sets the heap up if need be, and makes the calling thread ready to take locks.  False when there
 * is none to be had: memory is refused, or another malloc serves the process. */
bool slatei_start(void);

#endif
