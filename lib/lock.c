/* lib/lock.c - which thread is forking.
 *
 * SPDX-License-Identifier: MIT
 */
#include "lock.h"

atomic_uintptr_t slatei_forking;
