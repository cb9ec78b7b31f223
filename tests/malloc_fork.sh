#!/usr/bin/env bash
# Runs tests/malloc_fork.c on libslate-malloc: forks under load, with other libraries' handlers,
# vfork, posix_spawn; and what a fork has to copy when a GiB is in use.
# SPDX-License-Identifier: MIT
set -u
name=malloc_fork
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared
few=yes
[ -n "${DEBUG:-}" ] && few=
program=$top_builddir/tests/malloc_fork

# All thousand where the library checks itself: they take most of a minute.
expect 0 "${few:+a fifth of }1,000 forks" env ${few:+SLATE_TEST_SCALE=5} SLATE_POLICY=shared LD_PRELOAD="$libslate" "$program" forks
for policy in ${policies/ shared/}; do
    expect 0 "forks, policy $policy" env SLATE_TEST_SCALE=50 SLATE_POLICY=$policy LD_PRELOAD="$libslate" "$program" forks
done
for policy in shared; do
    expect 0 "forks beside a thread that frees, policy $policy" on $policy "$program" forks_beside_a_freer
    expect 0 "other fork handlers, policy $policy" on $policy "$program" handlers
done
expect 0 "vfork, posix_spawn, system, popen" on shared "$program" spawns
# With few arenas threads share one, under a lock.
expect 0 "forks, 2 arenas" env SLATE_TEST_SCALE=10 SLATE_ARENAS=2 LD_PRELOAD="$libslate" "$program" forks

# A fork copies page tables: with slate they are no more than with libc's malloc, and most of a GiB
# on huge pages has next to none. Tests measure no time; the times are printed for whoever looks.
expect 0 "cost of a fork on libc's malloc" "$program" cost
read -r tables time < "$work/out"
for policy in shared; do
    expect 0 "cost of a fork, policy $policy" on $policy "$program" cost
    read -r own_tables own_time < "$work/out"
    echo "fork and exec with 1 GiB in use: policy $policy $own_tables KiB of page tables, $((own_time / 1000)) microseconds;" \
        "libc $tables KiB, $((time / 1000)) microseconds"
    [ "$own_tables" -le $((tables + 256)) ] ||
        fail "policy $policy: $own_tables KiB of page tables, with libc's malloc $tables KiB"
done
finish
