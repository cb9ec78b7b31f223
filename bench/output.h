/* output.h - result files: written beside their place, then renamed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_OUTPUT_H
#define SLATE_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct output {
    const char *path;
    char *temporary;
    FILE *file;
};

/* Whether a file can be written at `path`: known before the runs, not after them.  What is no plain
 * file must not be replaced by one.  Complains if not. */
bool output_is_possible(const char *path);

/* output_begin opens output->file; output_end puts it in its place if `good`, else takes it away.
 * Each returns 0; or -1 after a complaint, and then nothing is left behind. */
int output_begin(struct output *output, const char *path);
int output_end(struct output *output, bool good);

/* Writes `value` at `path` and releases it.  Returns as output_end. */
int output_write_json(json_t *value, const char *path);

#endif
