/* replay_json.c - writes all runs of a replay, and the machine they ran on, as JSON.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "replay_report.h"

#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <slate.h>

/* The first line of a small file, without its newline; "" if there is none. */
static void read_line(const char *path, char *line, size_t room)
{
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(line, (int)room, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

/* What stands behind the colon of the first line of `path` that begins with `name`. */
static void read_field(const char *path, const char *name, char *value, size_t room)
{
    char line[512];
    value[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, name, strlen(name)) != 0 || !colon)
            continue;
        snprintf(value, room, "%s", colon + 1 + strspn(colon + 1, " \t"));
        value[strcspn(value, "\n")] = '\0';
        break;
    }
    fclose(file);
}

/* A setting of the kind "always [madvise] never": the word in brackets, else the whole. */
static void read_choice(const char *path, char *value, size_t room)
{
    char line[256];
    read_line(path, line, sizeof line);
    char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
    if (close) {
        *close = '\0';
        snprintf(value, room, "%s", open + 1);
    } else {
        snprintf(value, room, "%s", line);
    }
}

static json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("?");
}

/* Every setting of khugepaged, by name. */
static json_t *json_khugepaged(const char *directory)
{
    json_t *object = json_object();
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512], value[256];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        read_line(path, value, sizeof value);
        if (entries[i]->d_name[0] != '.' && value[0])
            json_object_set_new(object, entries[i]->d_name, json_text(value));
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return object;
}

static json_t *json_huge_page_sizes(void)
{
    json_t *array = json_array();
    struct dirent **entries;
    int count = scandir("/sys/kernel/mm/hugepages", &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        long long kb;
        if (sscanf(entries[i]->d_name, "hugepages-%lldkB", &kb) == 1)
            json_array_append_new(array, json_integer(kb));
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return array;
}

static json_t *json_transparent_huge_pages(void)
{
    static const char *const names[] = {"enabled", "defrag", "shmem_enabled", "use_zero_page",
                                        "hpage_pmd_size"};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128], value[256];
        snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/%s", names[i]);
        read_choice(path, value, sizeof value);
        json_object_set_new(object, names[i], json_text(value));
    }
    json_object_set_new(object, "khugepaged",
                        json_khugepaged("/sys/kernel/mm/transparent_hugepage/khugepaged"));
    return object;
}

static json_t *json_allocators(const struct replay_report *report)
{
    json_t *object = json_object();
    for (size_t i = 0; i < report->allocators->count; i++)
        json_object_set_new(object, report->allocators->items[i].label,
                            json_text(report->versions[i] ? report->versions[i] : ""));
    return object;
}

static json_t *json_machine(const struct replay_report *report)
{
    char text[512], date[64] = "";
    struct utsname system;
    json_t *machine = json_object();
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_object_set_new(machine, "date", json_text(date));
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%s %s %s", system.sysname, system.release, system.machine);
        json_object_set_new(machine, "kernel", json_text(text));
    }
    read_field("/proc/cpuinfo", "model name", text, sizeof text);
    json_object_set_new(machine, "cpu", json_text(text));
    json_object_set_new(machine, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    read_field("/proc/meminfo", "MemTotal", text, sizeof text);
    json_object_set_new(machine, "memory_kb", json_integer(strtoll(text, NULL, 10)));
    json_object_set_new(machine, "page_bytes", json_integer(sysconf(_SC_PAGESIZE)));
    json_object_set_new(machine, "huge_page_sizes_kb", json_huge_page_sizes());
    json_object_set_new(machine, "transparent_huge_pages", json_transparent_huge_pages());
    read_line("/proc/sys/vm/overcommit_memory", text, sizeof text);
    json_object_set_new(machine, "overcommit_memory", json_text(text));
    json_object_set_new(machine, "slate", json_text(slate_version()));
    snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
    json_object_set_new(machine, "libc", json_text(text));
    json_object_set_new(machine, "allocators", json_allocators(report));
    return machine;
}

static json_t *json_run(const struct replay_result *run)
{
    return json_pack("{s:f,s:f,s:f,s:I,s:I,s:I,s:I}", "wall_s", run->wall_seconds, "user_s",
                     run->user_seconds, "sys_s", run->system_seconds, "rss_kb",
                     (json_int_t)run->resident_kb, "minor_faults", (json_int_t)run->minor_faults,
                     "anon_huge_kb", (json_int_t)run->anonymous_huge_kb, "page_table_kb",
                     (json_int_t)run->page_table_kb);
}

/* An allocator that failed on a trace has no entry for it. */
static json_t *json_results(const struct replay_report *report)
{
    json_t *results = json_array();
    for (size_t trace = 0; trace < report->trace_count; trace++) {
        for (size_t i = 0; i < report->allocators->count; i++) {
            if (*replay_failed(report, trace, i))
                continue;
            json_t *runs = json_array();
            for (int run = 0; run < report->runs; run++)
                json_array_append_new(runs, json_run(&replay_runs(report, trace, i)[run]));
            json_t *result = json_object();
            json_object_set_new(result, "trace", json_text(report->trace_names[trace]));
            json_object_set_new(result, "allocator", json_text(report->allocators->items[i].label));
            json_object_set_new(result, "runs", runs);
            json_array_append_new(results, result);
        }
    }
    return results;
}

int replay_write_json(const struct replay_report *report, const char *path, char *message,
                      size_t room)
{
    char *temporary;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        snprintf(message, room, "out of memory");
        return -1;
    }
    json_t *all = json_object();
    json_object_set_new(all, "machine", json_machine(report));
    json_object_set_new(all, "results", json_results(report));
    mode_t mask = umask(0);
    umask(mask);
    int descriptor = mkstemp(temporary);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    bool good = file && json_dumpf(all, file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
                fputc('\n', file) != EOF && fflush(file) == 0 &&
                fchmod(descriptor, 0666 & ~mask) == 0;
    int error = errno;
    if (file && fclose(file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good && rename(temporary, path) != 0) {
        error = errno;
        good = false;
    }
    if (!good) {
        snprintf(message, room, "%.600s: cannot be written: %s", path, strerror(error));
        if (descriptor >= 0)
            unlink(temporary);
    }
    json_decref(all);
    free(temporary);
    return good ? 0 : -1;
}
