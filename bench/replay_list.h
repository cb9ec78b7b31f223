/* replay_list.h - the allocators that a replay compares.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_REPLAY_LIST_H
#define SLATE_REPLAY_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* From KIND_REGION on: memory that ends with its phase. */
enum replay_kind {
    KIND_FLOOR,
    KIND_MALLOC,
    KIND_SLATE,
    KIND_CALL,
    KIND_REGION, /* slate's regions */
    KIND_APR,
    KIND_OBSTACK,
    KIND_SLAB,
    KIND_TALLOC
};
enum { SETTINGS_MAX = 12 };

struct replay_allocator {
    char label[64];
    enum replay_kind kind;
    char library[4096];               /* KIND_MALLOC: the file to preload, "" for libc's own */
    char *settings[SETTINGS_MAX + 1]; /* NAME=VALUE for the child's environment, ends with NULL */
    bool peer;                        /* counts when the best of the others is looked for */
};

struct replay_list {
    struct replay_allocator *items;
    size_t count;
};

/* Takes the LIST of --with apart; NULL is "all".  `all` is the list that "all" stands for; in it
 * "found" stands for the known libraries that are installed.  Returns 0; or -1 with one line in
 * `message`. */
int replay_list_parse(const char *text, const char *all, struct replay_list *list, char *message,
                      size_t room);
void replay_list_free(struct replay_list *list);

/* Whether all are regions (or the floor), or none is; false with one line in `message`. */
bool replay_list_agrees(const struct replay_list *list, bool regions, char *message, size_t room);

/* The item with that label, or -1. */
int replay_list_find(const struct replay_list *list, const char *label);

#endif
