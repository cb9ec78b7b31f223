/* replay_slate.c - replays on slate's inline interface.
 *
 * SPDX-License-Identifier: MIT
 */
#define SLATE_STATIC 1
#include "interface_slate.h"

#define REPLAY_NAME replay_slate
#define REPLAY_FLOOR 0

#include "replay_loop.h"
