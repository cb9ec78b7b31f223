/* run_library.h - where the library is that puts slate in malloc's place.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_RUN_LIBRARY_H
#define SLATE_RUN_LIBRARY_H

#include <stddef.h>

/* Finds libslate-malloc.so: in the build tree that this program is in, where it is installed as
 * seen from this program, beside this program, or in the folder that configure was told.  Puts its
 * path into `found`, of at least PATH_MAX bytes.  Returns 0; or -1 with one line in `message` of
 * `room` bytes, also when its path cannot stand in LD_PRELOAD. */
int run_find_library(char *found, char *message, size_t room);

#endif
