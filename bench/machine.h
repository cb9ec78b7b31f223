/* machine.h - what machine, kernel and allocators a measurement was made with.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_MACHINE_H
#define SLATE_MACHINE_H

#include "replay_list.h"

#include <jansson.h>
#include <stdio.h>

/* `versions` has an entry (or NULL) for each allocator. */
json_t *machine_json(const struct replay_list *list, char *const *versions);

/* The same as lines of text, at most 100 columns wide. */
void machine_print(const struct replay_list *list, char *const *versions, FILE *out);

#endif
