#!/usr/bin/env bash
# Runs tests/malloc_limits.c on libslate-malloc: under limits of address space and of memory, with
# memory locked; and looks at the size of core dumps. Changes no setting of the host.
# SPDX-License-Identifier: MIT
set -u
name=malloc_limits
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared
program=$top_builddir/tests/malloc_limits

# under OPTION KIB POLICY CASE: with ulimit.
under() {
    (
        ulimit "$1" "$2" || exit 99
        on "$3" "$program" "$4"
    )
}

# limited MIB POLICY: with so much address space, of which a quarter at least is had.
limited() {
    expect 0 "ulimit -v $1M, policy $2" under -v $(($1 * 1024)) "$2" exhausted || return
    [ "$(cat "$work/out")" -ge $(($1 / 4)) ] || fail "ulimit -v $1M, policy $2: only $(cat "$work/out") MiB could be had"
}

for policy in $policies; do
    limited 256 "$policy"
    expect 0 "mlockall, policy $policy" on "$policy" "$program" locked
done
expect 0 "ulimit -d 256M" under -d $((256 * 1024)) switch exhausted
limited 1024 switch
[ -z "${DEBUG:-}" ] || limited 4096 shared # long

# A control group of its own, where this host lets one be made (version 2 or 1).
group=
for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
    for limit in memory.max memory.limit_in_bytes; do
        [ -z "$group" ] && mkdir "$root/slate-test-$$" 2> /dev/null || continue
        if [ -w "$root/slate-test-$$/$limit" ] && echo $((100 << 20)) > "$root/slate-test-$$/$limit" 2> /dev/null; then
            group=$root/slate-test-$$
        else
            rmdir "$root/slate-test-$$"
        fi
    done
done
if [ -n "$group" ]; then
    in_group() {
        (
            echo $BASHPID > "$group/cgroup.procs" || exit 99
            on "$1" "$program" below_limit
        )
    }
    for policy in $policies; do
        expect 0 "a group of 100M, policy $policy" in_group "$policy"
    done
    rmdir "$group"
else
    echo "a memory control group: skipped, none can be made here"
fi

# Core dumps hold what is in use and not the reservation.
pattern=$(cat /proc/sys/kernel/core_pattern 2> /dev/null)
case $pattern in
'' | '|'* | */*) echo "core dumps by the kernel: skipped, they go to \"$pattern\"" ;;
*)
    for policy in switch shared; do
        (
            cd "$work" && rm -f core* && ulimit -c unlimited && on $policy "$program" abort > "$work/rss" 2> /dev/null
        )
        core=$(find "$work" -name 'core*' -o -name "${pattern%%%*}*" -type f -size +1M | head -n 1)
        if [ -z "$core" ]; then
            echo "core dump by the kernel, policy $policy: skipped, none was written"
            continue
        fi
        done_tests=$((done_tests + 1))
        size=$(($(stat -c %s "$core") >> 10))
        rss=$(cat "$work/rss")
        { [ "$size" -gt 15000 ] && [ $size -le $((rss + 65536)) ]; } ||
            fail "a core dump of a process with $rss KiB in memory has $size KiB (policy $policy)"
        rm -f "$core"
    done
    ;;
esac
if command -v gcore > /dev/null; then
    for policy in switch shared; do
        done_tests=$((done_tests + 1))
        SLATE_POLICY=$policy LD_PRELOAD=$libslate "$program" wait > "$work/rss" 2> "$work/errors" &
        process=$!
        for ((i = 0; i < 200; i++)); do
            [ -s "$work/rss" ] && break
            sleep 0.05
        done
        timeout 100 gcore -o "$work/gcore" "$process" > "$work/log" 2>&1
        status=$?
        kill "$process"
        wait "$process" 2> /dev/null
        rss=$(cat "$work/rss")
        if [ ! -f "$work/gcore.$process" ]; then
            if grep -qiE 'ptrace|permitted' "$work/log"; then
                echo "gcore: skipped, no process may look at another here"
            else
                fail "gcore, policy $policy: exit $status: $(tail -n 3 "$work/log")"
            fi
            continue
        fi
        # Not that of its holes.
        size=$(($(stat -c %s "$work/gcore.$process") >> 10))
        { [ "$size" -gt 15000 ] && [ $size -le $((rss + 65536)) ]; } ||
            fail "gcore of a process with $rss KiB in memory has $size KiB (policy $policy)"
        rm -f "$work/gcore.$process"
    done
else
    echo "gcore: skipped, it is missing (Debian: gdb)"
fi
finish
