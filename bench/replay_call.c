/* replay_call.c - replays on slate through its real symbols: a call for each operation, as a malloc
 * has it.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_NO_INLINE 1
#include "interface_slate.h"

#define REPLAY_NAME replay_call
#define REPLAY_FLOOR 0

#include "replay_loop.h"
