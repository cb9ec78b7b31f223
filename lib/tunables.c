/* lib/tunables.c - one table of tunables; the only reader of the environment.
 *
 * SPDX-License-Identifier: MIT
 */
#include "tunables.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define SLATE_NO_INLINE
#include "report.h"
#include "slate.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* libslate-malloc runs whole programs, small ones among them, for which `switch` makes a page table
 * and several system calls a class: its default is `shared`. */
#ifdef SLATEI_SHARED_BY_DEFAULT
#define DEFAULT_POLICY SLATEI_SHARED
#define DEFAULT_POLICY_NAME "shared"
#else
#define DEFAULT_POLICY SLATEI_SWITCH
#define DEFAULT_POLICY_NAME "switch"
#endif

struct slatei_settings slatei_settings = {
    .policy = DEFAULT_POLICY,
    .order = SLATEI_BOUNDED,
    .stats = SLATEI_STATS_NONE,
    .switch_bytes = 8 * MIB,
    .arenas = 64,
    .slice_bytes = 4 * GIB,
    .scratch = 64 << 10,
    .verbose = false,
};

static const char *const policy_words[] = {"never", "always", "switch", "shared", NULL};
static const char *const order_words[] = {"bounded", "lifo", NULL};
static const char *const stats_words[] = {"0", "1", "json", NULL};
static const char *const verbose_words[] = {"0", "1", NULL};

/* What the program is shown of each tunable, in the order of the enum below. */
static const struct slate_tunable shown[] = {
    {"SLATE_POLICY", "word", "never, always, switch or shared", DEFAULT_POLICY_NAME,
     "Page policy: which parts of the heap are on small pages and which on huge ones."},
    {"SLATE_SWITCH", "bytes", "0 to 1T", "8M",
     "Switch point: bytes on small pages before huge pages begin, rounded up to whole huge pages."},
    {"SLATE_ARENAS", "arenas", "2 to 1023", "64",
     "Thread arenas at most; threads beyond them share the last one."},
    {"SLATE_SLICE", "bytes", "16M to 64G", "4G",
     "Address space of a class slice (policies never, always, switch), rounded to a power of two."},
    {"SLATE_SCRATCH", "bytes", "0 to 1G", "64K",
     "Most scratch memory that a thread keeps between uses; larger drained buffers are given up."},
    {"SLATE_ORDER", "word", "bounded or lifo", "bounded",
     "Order of free blocks: short stacks over bitmaps, or plain last in, first out."},
    {"SLATE_STATS", "word", "0, 1 or json", "0",
     "At exit, statistics on standard error: none, as text, or as JSON."},
    {"SLATE_VERBOSE", "word", "0 or 1", "0",
     "At the first allocation, one line on standard error that tells what was set up."},
};

enum { POLICY, SWITCH, ARENAS, SLICE, SCRATCH, ORDER, STATS, VERBOSE, TUNABLES };

_Static_assert(sizeof shown / sizeof *shown == TUNABLES, "a row for each tunable");

/* How each is read: a word of a list, or a number in a range. */
static const struct {
    const char *const *words;
    uint64_t least, most;
} rules[TUNABLES] = {
    [POLICY] = {policy_words, 0, 0}, [SWITCH] = {NULL, 0, 1024 * GIB},
    [ARENAS] = {NULL, 2, 1023},      [SLICE] = {NULL, 16 * MIB, 64 * GIB},
    [SCRATCH] = {NULL, 0, GIB},      [ORDER] = {order_words, 0, 0},
    [STATS] = {stats_words, 0, 0},   [VERBOSE] = {verbose_words, 0, 0},
};

/* Bit i: tunable i was set in code, so the environment does not count. */
static unsigned set_in_code;

static bool parse_number(const char *text, uint64_t *number)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    if (at == text)
        return false;
    unsigned shift = 0;
    switch (*at) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    case 't':
    case 'T':
        shift = 40;
        break;
    default:
        break;
    }
    if (shift != 0)
        at++;
    if (*at != '\0' || value > UINT64_MAX >> shift)
        return false;
    *number = value << shift;
    return true;
}

static size_t power_of_two(uint64_t number) { return (size_t)1 << (63 - __builtin_clzll(number)); }

static void store(unsigned index, uint64_t value)
{
    switch (index) {
    case POLICY:
        slatei_settings.policy = (enum slatei_policy)value;
        break;
    case SWITCH:
        slatei_settings.switch_bytes = (size_t)value;
        break;
    case ARENAS:
        slatei_settings.arenas = (size_t)value;
        break;
    case SLICE:
        slatei_settings.slice_bytes = power_of_two(value);
        break;
    case SCRATCH:
        slatei_settings.scratch = (size_t)value;
        break;
    case ORDER:
        slatei_settings.order = (enum slatei_order)value;
        break;
    case STATS:
        slatei_settings.stats = (enum slatei_stats_form)value;
        break;
    case VERBOSE:
        slatei_settings.verbose = value != 0;
        break;
    default:
        break;
    }
}

static bool read_value(unsigned index, const char *text)
{
    const char *const *words = rules[index].words;
    if (words != NULL) {
        for (unsigned i = 0; words[i] != NULL; i++)
            if (strcmp(words[i], text) == 0) {
                store(index, i);
                return true;
            }
        return false;
    }
    uint64_t number;
    if (!parse_number(text, &number) || number < rules[index].least || number > rules[index].most)
        return false;
    store(index, number);
    return true;
}

int slatei_tunables_set(const char *name, const char *value)
{
    for (unsigned i = 0; i < TUNABLES; i++)
        if (strcmp(shown[i].name, name) == 0) {
            if (!read_value(i, value))
                return EINVAL;
            set_in_code |= 1u << i;
            return 0;
        }
    return EINVAL;
}

#define READABLE 60

/* A value as a report shows it: short and printable, so that the report stays one whole line. */
static void make_readable(const char *text, char readable[READABLE + 4])
{
    size_t length = 0;
    for (; text[length] != '\0' && length < READABLE; length++)
        readable[length] = text[length] >= ' ' && text[length] != '\177' ? text[length] : '?';
    const char *rest = text[length] != '\0' ? "..." : "";
    memcpy(readable + length, rest, strlen(rest) + 1);
}

/* The C library's, and where the kernel put the environment: a program may allocate before the C
 * library knows of it. */
extern char **process_environment __asm__("environ") __attribute__((weak));
extern void *stack_at_entry __asm__("__libc_stack_end") __attribute__((weak));

static char **environment(void)
{
    if (&process_environment != NULL && process_environment != NULL)
        return process_environment;
    if (&stack_at_entry == NULL || stack_at_entry == NULL)
        return NULL;
    /* Number of arguments, arguments, NULL, environment, NULL. */
    const uintptr_t *count = stack_at_entry;
    return (char **)(uintptr_t)(count + 1 + *count + 1);
}

/* The value of a variable; NULL without it, and in set-user-id programs always.  What it points to
 * may end as soon as the program changes its environment: nothing here keeps it. */
static const char *variable(const char *name)
{
    char **at = environment();
    size_t length = strlen(name);
    for (; at != NULL && *at != NULL; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

void slatei_tunables_start(void)
{
    if (getauxval(AT_SECURE) != 0)
        return;
    for (unsigned i = 0; i < TUNABLES; i++) {
        if (set_in_code & 1u << i)
            continue;
        const char *text = variable(shown[i].name);
        if (text != NULL && !read_value(i, text)) {
            char readable[READABLE + 4];
            make_readable(text, readable);
            slatei_report(shown[i].name, "=\"", readable, "\": allowed is ", shown[i].range, " (",
                          shown[i].unit, "); the default ", shown[i].default_value, " is used",
                          NULL);
        }
    }
}

const char *slatei_policy_name(enum slatei_policy policy) { return policy_words[policy]; }

const struct slate_tunable *slate_tunables(size_t *count)
{
    *count = TUNABLES;
    return shown;
}
