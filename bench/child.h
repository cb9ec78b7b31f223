/* child.h - what every measuring child process needs: its result page, who malloc is, what the
 * kernel counts.
 *
 * SPDX-License-Identifier: MIT
 *
 * Nothing here allocates through the measured allocator.
 */
#ifndef SLATE_CHILD_H
#define SLATE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHILD_VERSION_BYTES = 256 };

/* The page that the parent reads the results from; NULL if there is none, as when the program was
 * not started by launch_child. */
void *child_map_result(size_t bytes);

/* Memory of the child's own, touched already; NULL with errno. */
void *child_map(size_t bytes);

void child_set_version(char version[CHILD_VERSION_BYTES], const char *text);

/* Names in `version` the file that malloc comes from, and its version where it tells.  Returns
 * whether it is `expected`; with "" any is right. */
bool child_find_malloc(char version[CHILD_VERSION_BYTES], const char *expected);

struct child_sizes {
    uint64_t resident_kb, peak_kb, page_table_kb;
};

struct child_sizes child_read_sizes(void);
uint64_t child_read_anonymous_huge_kb(void);

/* Lets the peak begin anew at what is resident now. */
void child_reset_peak(void);

#endif
