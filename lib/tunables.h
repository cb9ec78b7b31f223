/* lib/tunables.h - the settings of a process, from the environment or from slate_tune.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATEI_TUNABLES_H
#define SLATEI_TUNABLES_H

#include <stdbool.h>
#include <stddef.h>

enum slatei_policy { SLATEI_NEVER, SLATEI_ALWAYS, SLATEI_SWITCH, SLATEI_SHARED };
enum slatei_order { SLATEI_BOUNDED, SLATEI_LIFO };
enum slatei_stats_form { SLATEI_STATS_NONE, SLATEI_STATS_TEXT, SLATEI_STATS_JSON };

/* Written before the first allocation only, read by everybody after. */
struct slatei_settings {
    enum slatei_policy policy;
    enum slatei_order order;
    enum slatei_stats_form stats;
    size_t switch_bytes; /* the switch point */
    size_t arenas;       /* wished number of thread arenas */
    size_t slice_bytes;  /* wished span of a class slice */
    size_t scratch;      /* bytes of scratch, or of a drained buffer, that are kept */
    bool verbose;
};

extern struct slatei_settings slatei_settings;

/* Reads the environment (unless the process is set-user-id) over whatever slatei_tunables_set has
 * not set. Called once, before the first allocation. */
void slatei_tunables_start(void);
/* Sets one by name.  Returns 0 or EINVAL. */
int slatei_tunables_set(const char *name, const char *value);
/* The word for a policy, as SLATE_POLICY takes it. */
const char *slatei_policy_name(enum slatei_policy policy);

#endif
