/* numbers.h - medians and geometric means.  A value that is missing is NaN.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_NUMBERS_H
#define SLATE_NUMBERS_H

#include <stddef.h>
#include <stdio.h>

struct spread {
    double median, least, most;
};

/* NaN in `values` makes all three NaN.  Sorts `values`. */
struct spread spread_of(double *values, int count);

/* What the geometric mean and the worst of some ratios come to; what has no value is left out. */
struct mean {
    double logarithms, worst;
    size_t count;
};

void mean_add(struct mean *mean, double ratio);
double mean_value(const struct mean *mean);

/* One cell of a table, right-aligned; "-" for NaN. */
void print_cell(FILE *out, double value, int width, int decimals);

#endif
