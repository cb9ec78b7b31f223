/* replay_list.c - takes the list of allocators apart and finds the libraries.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "config.h"

#include "replay_list.h"

#include <slate.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* slate's page policies. */
static const char *const policies[] = {"never", "always", "switch", "shared"};

/* Malloc libraries known by name, with the file names to look for, best first. */
static const struct {
    const char *name;
    const char *files[4];
} known_libraries[] = {
    {"mimalloc", {"libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"}},
    {"jemalloc", {"libjemalloc.so.2", "libjemalloc.so"}},
    {"tcmalloc", {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"}},
};

/* What other kinds of regions this program was built with. */
static const struct {
    const char *name;
    enum replay_kind kind;
    bool built;
} region_kinds[] = {
#ifdef HAVE_APR
    {"apr", KIND_APR, true},
#else
    {"apr", KIND_APR, false},
#endif
#ifdef HAVE_OBSTACK
    {"obstack", KIND_OBSTACK, true},
#else
    {"obstack", KIND_OBSTACK, false},
#endif
    {"slab", KIND_SLAB, true},
#ifdef HAVE_TALLOC
    {"talloc", KIND_TALLOC, true},
#else
    {"talloc", KIND_TALLOC, false},
#endif
};

enum {
    REGION_COUNT = sizeof region_kinds / sizeof region_kinds[0],
    POLICY_COUNT = sizeof policies / sizeof policies[0],
    KNOWN_COUNT = sizeof known_libraries / sizeof known_libraries[0]
};

struct parser {
    struct replay_list *list;
    const char *all; /* what "all" stands for */
    char *message;
    size_t room;
};

__attribute__((format(printf, 2, 3))) static int fail(struct parser *parser, const char *format,
                                                      ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->message, parser->room, format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- libraries ---- */

static bool is_in(const char *directory, size_t length, const char *file, char *found)
{
    char path[PATH_MAX];
    if (length == 0 ||
        snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, file) >= (int)sizeof path)
        return false;
    return access(path, R_OK) == 0 && realpath(path, found) != NULL;
}

/* The directory that libc was loaded from: on Debian and its kin the one of this architecture. */
static void libc_directory(char *directory, size_t room)
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, "getpid");
    directory[0] = '\0';
    if (!address || !dladdr(address, &info))
        return;
    snprintf(directory, room, "%s", info.dli_fname);
    char *slash = strrchr(directory, '/');
    if (slash)
        *slash = '\0';
}

/* Looks for a library's file where the dynamic linker would.  `found` has room for PATH_MAX. */
static bool find_file(const char *file, char *found)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":;");
        if (is_in(path, length, file, found))
            return true;
        path += length + (path[length] != '\0');
    }
    char of_libc[PATH_MAX], local[PATH_MAX + 16];
    libc_directory(of_libc, sizeof of_libc);
    const char *base = strrchr(of_libc, '/');
    snprintf(local, sizeof local, "/usr/local/lib%s", base ? base : "");
    const char *const directories[] = {local,    "/usr/local/lib", of_libc, "/usr/lib64",
                                       "/lib64", "/usr/lib",       "/lib"};
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++)
        if (is_in(directories[i], strlen(directories[i]), file, found))
            return true;
    return false;
}

static bool find_known(size_t which, char *found)
{
    for (size_t i = 0; i < 4 && known_libraries[which].files[i]; i++)
        if (find_file(known_libraries[which].files[i], found))
            return true;
    return false;
}

/* Returns 0; or -1 when `path` is no shared library that can be read. */
static int check_library(struct parser *parser, const char *path, char *found)
{
    unsigned char ident[EI_NIDENT];
    int file = realpath(path, found) ? open(found, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return fail(parser, "allocator \"path:%s\": %s", path, strerror(errno));
    ssize_t got = read(file, ident, sizeof ident);
    close(file);
    if (got != (ssize_t)sizeof ident || memcmp(ident, ELFMAG, SELFMAG) != 0)
        return fail(parser, "allocator \"path:%s\": not a shared library", path);
    /* LD_PRELOAD takes these for separators. */
    if (strpbrk(found, " :"))
        return fail(parser,
                    "allocator \"path:%s\": a name with a space or colon cannot be preloaded",
                    path);
    return 0;
}

/* ---- items ---- */

static struct replay_allocator *add(struct parser *parser, const char *label, enum replay_kind kind)
{
    struct replay_list *list = parser->list;
    if (strlen(label) >= sizeof list->items->label) {
        fail(parser, "allocator name \"%s\" is longer than %zu bytes", label,
             sizeof list->items->label - 1);
        return NULL;
    }
    if (replay_list_find(list, label) >= 0) {
        fail(parser, "allocator \"%s\" is named twice", label);
        return NULL;
    }
    struct replay_allocator *items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items) {
        fail(parser, "out of memory");
        return NULL;
    }
    list->items = items;
    struct replay_allocator *item = &items[list->count++];
    memset(item, 0, sizeof *item);
    memcpy(item->label, label, strlen(label) + 1);
    item->kind = kind;
    /* What is called slate is slate, however it is reached. */
    item->peer = (kind == KIND_MALLOC || kind > KIND_REGION) && strncmp(label, "slate", 5) != 0;
    return item;
}

static int add_setting(struct parser *parser, struct replay_allocator *item, const char *name,
                       const char *value)
{
    for (int i = 0; i < SETTINGS_MAX; i++) {
        if (item->settings[i])
            continue;
        if (asprintf(&item->settings[i], "%s=%s", name, value) < 0) {
            item->settings[i] = NULL;
            return fail(parser, "out of memory");
        }
        return 0;
    }
    return fail(parser, "allocator \"%s\" has more than %d settings", item->label, SETTINGS_MAX);
}

static bool is_policy(const char *word)
{
    for (int i = 0; i < POLICY_COUNT; i++)
        if (strcmp(word, policies[i]) == 0)
            return true;
    return false;
}

static int check_policy(struct parser *parser, const char *word)
{
    if (is_policy(word))
        return 0;
    char all[128] = "";
    for (int i = 0; i < POLICY_COUNT; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", policies[i]);
    return fail(parser, "unknown policy \"%s\" of slate; allowed: %s", word, all);
}

static int check_tunable(struct parser *parser, const char *name)
{
    size_t count;
    const struct slate_tunable *tunables = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, tunables[i].name) == 0)
            return 0;
    return fail(parser, "unknown setting \"%s\" of slate; slate --help-tunables lists them", name);
}

/* "slate" or "call", then :POLICY or :NAME=VALUE, any number of them. */
static int parse_slate(struct parser *parser, const char *label, char *rest, enum replay_kind kind)
{
    struct replay_allocator *item = add(parser, label, kind);
    if (!item)
        return -1;
    while (rest) {
        char *word = strsep(&rest, ":");
        char *equals = strchr(word, '=');
        if (equals) {
            *equals = '\0';
            if (check_tunable(parser, word) < 0 || add_setting(parser, item, word, equals + 1) < 0)
                return -1;
        } else if (check_policy(parser, word) < 0 ||
                   add_setting(parser, item, "SLATE_POLICY", word) < 0) {
            return -1;
        }
    }
    return 0;
}

static int add_library(struct parser *parser, const char *label, const char *file)
{
    struct replay_allocator *item = add(parser, label, KIND_MALLOC);
    if (!item)
        return -1;
    memcpy(item->library, file, strlen(file) + 1);
    return 0;
}

static int add_glibc(struct parser *parser, const char *label, bool huge)
{
    struct replay_allocator *item = add(parser, label, KIND_MALLOC);
    if (!item)
        return -1;
    return huge ? add_setting(parser, item, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1") : 0;
}

/* "path:FILE": the label is the file's name without "lib", ".so" and what is behind, unless one is
 * given. */
static int parse_path(struct parser *parser, const char *label, const char *path)
{
    char found[PATH_MAX], name[64];
    if (check_library(parser, path, found) < 0)
        return -1;
    if (!label) {
        const char *base = strrchr(path, '/');
        base = base ? base + 1 : path;
        if (strncmp(base, "lib", 3) == 0)
            base += 3;
        const char *end = strstr(base, ".so");
        size_t length = end && end > base ? (size_t)(end - base) : strlen(base);
        snprintf(name, sizeof name, "%.*s", (int)length, base);
        label = name;
    }
    return add_library(parser, label, found);
}

/* `label` is what stands before '=', or NULL. */
static int parse_item(struct parser *parser, const char *label, char *text)
{
    char found[PATH_MAX], name[256];
    if (strncmp(text, "path:", 5) == 0)
        return parse_path(parser, label, text + 5);
    snprintf(name, sizeof name, "%s", label ? label : text);
    if (strcmp(text, "floor") == 0)
        return add(parser, name, KIND_FLOOR) ? 0 : -1;
    if (strcmp(text, "glibc") == 0 || strcmp(text, "glibc+thp") == 0)
        return add_glibc(parser, name, text[5] == '+');
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (strcmp(text, known_libraries[i].name) != 0)
            continue;
        if (!find_known(i, found))
            return fail(
                parser,
                "allocator \"%s\": its library (%s) is not installed; path:FILE takes another",
                text, known_libraries[i].files[0]);
        return add_library(parser, name, found);
    }
    for (size_t i = 0; i < REGION_COUNT; i++) {
        if (strcmp(text, region_kinds[i].name) != 0)
            continue;
        if (!region_kinds[i].built)
            return fail(parser, "allocator \"%s\": slate was built without that library", text);
        return add(parser, name, region_kinds[i].kind) ? 0 : -1;
    }
    char *rest = text;
    char *word = strsep(&rest, ":");
    if (strcmp(word, "region") == 0)
        return parse_slate(parser, name, rest, KIND_REGION);
    if (strcmp(word, "slate") == 0)
        return parse_slate(parser, name, rest, KIND_SLATE);
    if (strcmp(word, "call") == 0)
        return parse_slate(parser, name, rest, KIND_CALL);
    return fail(parser,
                "unknown allocator \"%s\"; allowed: slate[:POLICY][:NAME=VALUE], call[:POLICY], "
                "glibc, glibc+thp, mimalloc, jemalloc, tcmalloc, floor, path:FILE, found, all; as "
                "regions region[:POLICY], apr, obstack, slab, talloc",
                word);
}

/* "found": the known libraries that are installed. */
static int add_found(struct parser *parser)
{
    char found[PATH_MAX];
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (find_known(i, found) && add_library(parser, known_libraries[i].name, found) < 0)
            return -1;
    return 0;
}

/* "built": all other regions that this program was built with. */
static int add_built(struct parser *parser)
{
    for (size_t i = 0; i < REGION_COUNT; i++)
        if (region_kinds[i].built && !add(parser, region_kinds[i].name, region_kinds[i].kind))
            return -1;
    return 0;
}

/* The '=' behind a label: before the first ':' (what is behind may hold settings of its own). */
static char *label_end(char *item)
{
    size_t length = strcspn(item, ":=");
    return item[length] == '=' ? item + length : NULL;
}

static int parse_text(struct parser *parser, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return fail(parser, "out of memory");
    int result = 0;
    for (char *rest = copy, *item; result == 0 && (item = strsep(&rest, ","));) {
        char *equals = label_end(item);
        if (equals)
            *equals = '\0';
        if (!*item || (equals && !equals[1]))
            result = fail(parser, "an allocator's name is empty in \"%s\"", text);
        else if (!equals && parser->all && strcmp(item, "all") == 0)
            result = parse_text(&(struct parser){parser->list, NULL, parser->message, parser->room},
                                parser->all);
        else if (!equals && strcmp(item, "found") == 0)
            result = add_found(parser);
        else if (!equals && strcmp(item, "built") == 0)
            result = add_built(parser);
        else
            result = parse_item(parser, equals ? item : NULL, equals ? equals + 1 : item);
    }
    free(copy);
    return result;
}

int replay_list_parse(const char *text, const char *all, struct replay_list *list, char *message,
                      size_t room)
{
    struct parser parser = {.list = list, .all = all, .message = message, .room = room};
    *list = (struct replay_list){NULL, 0};
    return parse_text(&parser, text ? text : "all");
}

void replay_list_free(struct replay_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        for (int k = 0; k < SETTINGS_MAX; k++)
            free(list->items[i].settings[k]);
    free(list->items);
}

bool replay_list_agrees(const struct replay_list *list, bool regions, char *message, size_t room)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct replay_allocator *item = &list->items[i];
        if (item->kind == KIND_FLOOR || (item->kind >= KIND_REGION) == regions)
            continue;
        if (regions)
            snprintf(message, room,
                     "\"%s\" is no region; allowed: region[:POLICY], apr, obstack, slab, talloc, "
                     "floor",
                     item->label);
        else
            snprintf(message, room, "\"%s\" is a region: slate replay --as-region compares those",
                     item->label);
        return false;
    }
    return true;
}

int replay_list_find(const struct replay_list *list, const char *label)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].label, label) == 0)
            return (int)i;
    return -1;
}
