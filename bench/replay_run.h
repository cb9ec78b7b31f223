/* replay_run.h - runs one (trace, allocator) in a child process.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REPLAY_RUN_H
#define SLATE_REPLAY_RUN_H

#include "replay_encode.h"
#include "replay_list.h"

/* Replays once.  Returns 0 and fills `result`; or -1 with one line in `message` that names `name`
 * and the allocator. */
int replay_run(const struct replay_trace *trace, const char *path, const char *name,
               const struct replay_allocator *allocator, bool check_all,
               struct replay_result *result, char *message, size_t room);

#endif
