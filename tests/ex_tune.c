/* ex_tune.c - a program with settings of its own: they come before the first allocation.
 *
 * SPDX-License-Identifier: MIT
 */
#include <slate.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int set(const char *name, const char *value)
{
    int error = slate_tune(name, value);
    if (error != 0)
        fprintf(stderr, "%s=%s: %s\n", name, value, strerror(error));
    return error;
}

int main(void)
{
    if (set("SLATE_POLICY", "shared") != 0 || set("SLATE_SWITCH", "4M") != 0)
        return 1;
    /* What a user types wrong is an answer, not a message; the default stays. */
    if (slate_tune("SLATE_SWITCH", "a lot") != EINVAL || slate_tune("SLATE_SWICH", "4M") != EINVAL)
        return 1;

    char *text = slate_alloc(6);
    if (text == NULL)
        return 1;
    strcpy(text, "tuned");
    puts(text);
    slate_free(text);

    /* Now it is too late. */
    if (slate_tune("SLATE_POLICY", "never") != EBUSY)
        return 1;

    size_t count;
    const struct slate_tunable *tunables = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        printf("%-14s %s\n", tunables[i].name, tunables[i].range);
    return 0;
}
