/* machine.c - what machine, kernel and allocators a measurement was made with.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "machine.h"

#include <slate.h>

#include <dirent.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

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

static json_t *json_allocators(const struct replay_list *list, char *const *versions)
{
    json_t *object = json_object();
    for (size_t i = 0; i < list->count; i++)
        json_object_set_new(object, list->items[i].label,
                            json_text(versions[i] ? versions[i] : ""));
    return object;
}

json_t *machine_json(const struct replay_list *list, char *const *versions)
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
    json_object_set_new(machine, "allocators", json_allocators(list, versions));
    return machine;
}

/* ---- as text ---- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && *text ? text : "?";
}

static long long number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

void machine_print(const struct replay_list *list, char *const *versions, FILE *out)
{
    json_t *machine = machine_json(list, versions);
    const json_t *huge = json_object_get(machine, "transparent_huge_pages");
    const json_t *khugepaged = json_object_get(huge, "khugepaged");
    fprintf(out, "date               %.80s\n", text_of(machine, "date"));
    fprintf(out, "cpu                %.60s, %lld cores\n", text_of(machine, "cpu"),
            number_of(machine, "cores"));
    fprintf(out, "kernel             %.80s\n", text_of(machine, "kernel"));
    fprintf(out, "memory             %.1f GiB, pages of %lld KiB, overcommit_memory %.10s\n",
            (double)number_of(machine, "memory_kb") / (1 << 20),
            number_of(machine, "page_bytes") / 1024, text_of(machine, "overcommit_memory"));
    fprintf(out, "huge pages         enabled %.20s, defrag %.20s, of %.20s bytes\n",
            text_of(huge, "enabled"), text_of(huge, "defrag"), text_of(huge, "hpage_pmd_size"));
    fprintf(out,
            "khugepaged         defrag %.10s, max_ptes_none %.10s, scan_sleep_millisecs %.10s\n",
            text_of(khugepaged, "defrag"), text_of(khugepaged, "max_ptes_none"),
            text_of(khugepaged, "scan_sleep_millisecs"));
    fprintf(out, "slate              %.20s\nlibc               %.40s\n", text_of(machine, "slate"),
            text_of(machine, "libc"));
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].library[0])
            fprintf(out, "%-18.18s %.60s\n", list->items[i].label,
                    versions[i] ? versions[i] : "never ran");
    json_decref(machine);
}
