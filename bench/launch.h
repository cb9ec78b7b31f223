/* launch.h - runs this program again as a child of its own on a chosen allocator.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_LAUNCH_H
#define SLATE_LAUNCH_H

#include "replay_list.h"

/* Files that a child inherits. */
enum { LAUNCH_INPUT_FILE = 3, LAUNCH_RESULT_FILE = 4, LAUNCH_ARGUMENTS_MAX = 16 };

/* Runs this program with `arguments` (from the subcommand's name on, ends with NULL), with the
 * allocator preloaded and its settings set, and waits for its end.  `input` is the file that the
 * child has as LAUNCH_INPUT_FILE, or -1; LAUNCH_RESULT_FILE is `bytes` of memory, zero at first,
 * that `result` receives.  Returns 0 and the child's wait status in `status`; or -1 with errno
 * when it could not be started. */
int launch_child(const struct replay_allocator *allocator, const char *const *arguments, int input,
                 void *result, size_t bytes, int *status);

/* The kind's name, as a child takes it among its arguments. */
const char *launch_kind(const struct replay_allocator *allocator);

/* Says in `what` how a child ended that left no other reason. */
void launch_describe_end(int status, char *what, size_t room);

#endif
