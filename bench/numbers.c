/* numbers.c - medians and geometric means.
 *
 * SPDX-License-Identifier: MIT
 */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

struct spread spread_of(double *values, int count)
{
    for (int i = 0; i < count; i++)
        if (isnan(values[i]))
            return (struct spread){NAN, NAN, NAN};
    qsort(values, (size_t)count, sizeof *values, compare_numbers);
    double median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    return (struct spread){median, values[0], values[count - 1]};
}

void mean_add(struct mean *mean, double ratio)
{
    if (isnan(ratio) || ratio <= 0 || isinf(ratio))
        return;
    mean->logarithms += log(ratio);
    mean->worst = mean->count == 0 || ratio > mean->worst ? ratio : mean->worst;
    mean->count++;
}

double mean_value(const struct mean *mean)
{
    return mean->count ? exp(mean->logarithms / (double)mean->count) : NAN;
}

void print_cell(FILE *out, double value, int width, int decimals)
{
    if (isnan(value))
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, "%*.*f", width, decimals, value);
}
