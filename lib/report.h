/* lib/report.h - messages without a heap.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_REPORT_H
#define SLATEI_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line being made.  length <= sizeof text; what does not fit is cut. */
struct slatei_line {
    size_t length;
    char text[512];
};

void slatei_line_text(struct slatei_line *line, const char *text);
void slatei_line_number(struct slatei_line *line, uint64_t number);
/* As slatei_line_number, right-aligned in `width` columns. */
void slatei_line_column(struct slatei_line *line, uint64_t number, unsigned width);
/* As 0x and hexadecimal digits. */
void slatei_line_address(struct slatei_line *line, const void *address);
/* Bytes as "8 MiB" where that is exact, else as "8388609 bytes". */
void slatei_line_bytes(struct slatei_line *line, uint64_t bytes);
/* Writes the line and a newline to standard error with one call, and empties it.  Keeps errno. */
void slatei_line_print(struct slatei_line *line);

/* Prints "slate: " and the texts up to a NULL, in one line on standard error. */
void slatei_report(const char *text, ...) __attribute__((sentinel));
/* True the first time only, for each `once` (initially false); any thread. */
bool slatei_report_first(atomic_bool *once);

#ifdef SLATEI_DEBUG
/* Tells of a condition that does not hold, and aborts.  Allocates nothing and takes no lock. */
_Noreturn void slatei_assert_failed(const char *condition, const char *file, unsigned line);
#endif

#endif
