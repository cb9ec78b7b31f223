/* replay_malloc.c - replays on the process's malloc: libc's own, or a preloaded library's.
 *
 * SPDX-License-Identifier: MIT
 */
#include "interface_malloc.h"

#define REPLAY_NAME replay_malloc
#define REPLAY_FLOOR 0

#include "replay_loop.h"
