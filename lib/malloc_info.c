/* lib/malloc_info.c - libc's functions that tell of the heap and trim it.
 *
 * SPDX-License-Identifier: MIT
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include "large.h"
#include "malloc_names.h"
#include "report.h"

size_t LIBC(malloc_usable_size)(void *block) { return slate_usable_size_inline_(block); }

int LIBC(malloc_trim)(size_t pad)
{
    (void)pad;
    return slate_purge() != 0;
}

/* slate has no use for any of them: its settings are its tunables.  Answers as if it had, so that
 * programs that insist go on. */
int LIBC(mallopt)(int parameter, int value)
{
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}

static struct slate_stats stats_now(void)
{
    struct slate_stats stats;
    slate_stats(&stats, sizeof stats);
    return stats;
}

static size_t own_mappings(void)
{
    size_t bytes, blocks, resident;
    slatei_large_count(&bytes, &blocks, &resident);
    return blocks;
}

/* arena == uordblks + fordblks, as in glibc; mappings are counted beside it. */
struct mallinfo2 LIBC(mallinfo2)(void)
{
    struct slate_stats stats = stats_now();
    struct mallinfo2 info = {0};
    info.uordblks = stats.in_use;
    info.fordblks = stats.free_list + stats.free_unit + stats.tails + stats.free_runs;
    info.arena = info.uordblks + info.fordblks;
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of_class = &stats.classes[i];
        if (of_class->size != 0)
            info.ordblks += (of_class->free_list + of_class->free_unit) / of_class->size;
    }
    info.hblks = own_mappings();
    info.hblkhd = stats.own_mappings;
    info.keepcost = stats.free_runs;
    return info;
}

static int clamp(size_t number) { return number < INT_MAX ? (int)number : INT_MAX; }

/* Numbers that do not fit are INT_MAX. */
struct mallinfo LIBC(mallinfo)(void)
{
    struct mallinfo2 wide = LIBC(mallinfo2)();
    struct mallinfo info = {0};
    info.arena = clamp(wide.arena);
    info.ordblks = clamp(wide.ordblks);
    info.hblks = clamp(wide.hblks);
    info.hblkhd = clamp(wide.hblkhd);
    info.uordblks = clamp(wide.uordblks);
    info.fordblks = clamp(wide.fordblks);
    info.keepcost = clamp(wide.keepcost);
    return info;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* whoever calls it is to be told */
SLATEI_ALSO(struct mallinfo, __libc_mallinfo, mallinfo, void);
#pragma GCC diagnostic pop

/* glibc's elements where they have a meaning here; slate's own beside them. */
int LIBC(malloc_info)(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct slate_stats stats = stats_now();
    fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", stream);
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        const struct slate_class_stats *of_class = &stats.classes[i];
        size_t free_bytes = of_class->free_list + of_class->free_unit;
        if (of_class->units != 0)
            fprintf(stream, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n",
                    i == 0 ? 0 : stats.classes[i - 1].size + 1, of_class->size, free_bytes,
                    free_bytes / of_class->size);
    }
    fputs("</sizes>\n</heap>\n", stream);
    fprintf(stream, "<total type=\"in_use\" size=\"%zu\"/>\n", stats.in_use);
    fprintf(stream, "<total type=\"rest\" size=\"%zu\"/>\n",
            stats.free_list + stats.free_unit + stats.tails + stats.free_runs);
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", own_mappings(),
            stats.own_mappings);
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", stats.resident);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", stats.reserved);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", stats.committed);
    fputs("</malloc>\n", stream);
    return 0;
}

static void print_row(const char *name, size_t number)
{
    struct slatei_line line = {0};
    slatei_line_text(&line, name);
    slatei_line_text(&line, " = ");
    slatei_line_column(&line, number, 12);
    slatei_line_print(&line);
}

void LIBC(malloc_stats)(void)
{
    struct slate_stats stats = stats_now();
    print_row("arenas        ", stats.arenas);
    print_row("system bytes  ", stats.resident);
    print_row("in use bytes  ", stats.in_use + stats.own_mappings);
    print_row("mmap regions  ", own_mappings());
    print_row("mmap bytes    ", stats.own_mappings);
}
