/* lib/assert.h - internal checks, in builds configured with --enable-debug.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_ASSERT_H
#define SLATEI_ASSERT_H

#include "report.h"

/* Reports `condition` with its place in one line and aborts the process when it does not hold.
 * Without --enable-debug nothing is evaluated. */
#ifdef SLATEI_DEBUG
#define SLATEI_ASSERT(condition)                                                                   \
    ((condition) ? (void)0 : slatei_assert_failed(#condition, __FILE__, __LINE__))
#else
#define SLATEI_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
