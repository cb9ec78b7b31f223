#!/usr/bin/env bash
# Runs tests/malloc_threads.c on libslate-malloc: more threads than arenas, many one after another,
# one that only frees, what runs as threads and the process end, libraries that are closed.
# SPDX-License-Identifier: MIT
set -u
name=malloc_threads
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared
program=$top_builddir/tests/malloc_threads

# A library with a thread of its own that allocates on and on, and that unloads nobody.
cat > "$work/plugin.c" << 'EOT'
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

int plugin_begin(void);
void plugin_end(void);
static pthread_t thread;
static atomic_bool stop;

static void *run(void *argument)
{
    for (size_t i = 0; !atomic_load(&stop); i++)
        free(realloc(malloc(i % 3000), i % 5000 + 1));
    return argument;
}

int plugin_begin(void) { return pthread_create(&thread, NULL, run, NULL); }

void plugin_end(void)
{
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}
EOT
compile plugin.so -shared -fPIC "$work/plugin.c" -pthread -Wl,-z,nodelete

for policy in $policies; do
    for case in at_once freer freer_of_the_gone ends main_ends; do
        expect 0 "$case, policy $policy" on "$policy" "$program" $case
    done
    expect 0 "closed_library, policy $policy" on "$policy" "$program" closed_library "$work/plugin.so"
done
expect 0 "at_once with 3 arenas" env SLATE_ARENAS=3 LD_PRELOAD="$libslate" "$program" at_once
expect 0 "ends with 3 arenas" env SLATE_ARENAS=3 LD_PRELOAD="$libslate" "$program" ends
expect 0 "in_turn" on shared "$program" in_turn
expect 0 "in_turn, policy switch" env SLATE_TEST_SCALE=10 SLATE_POLICY=switch LD_PRELOAD="$libslate" "$program" in_turn
expect 0 "closed_malloc" "$program" closed_malloc "$libslate"
finish
