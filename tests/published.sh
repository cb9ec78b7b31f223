#!/usr/bin/env bash
# The published comparison of the page policies `never`, `always` and `switch`: counts of the class
# slices against the simulation, then the shape of the whole in `slate replay` on a tsc run.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$(pwd)}" "${SANITIZER:=}"
traces=$top_srcdir/bench/traces
if [ -n "$SANITIZER" ]; then
    echo "skipped: sanitizers take memory of their own"
    exit 77
fi
for file in "$top_builddir/tests/published" "$top_builddir/bench/slate"; do
    if [ ! -x "$file" ]; then
        echo "published.sh: $file is missing: run make check" >&2
        exit 1
    fi
done
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}"

"$top_builddir/tests/published" "$traces" || exit 1

if ! grep -qE '\[(madvise|always)\]' /sys/kernel/mm/transparent_hugepage/enabled 2> /dev/null; then
    echo "skipped: the shape in slate replay, transparent huge pages are off"
    exit 77
fi
"$top_builddir/bench/slate" replay --runs 1 --touch none --with slate:never,slate:always,slate:switch \
    --json "$work/results.json" "$traces/tsc-small.slt" > "$work/table" 2> "$work/errors" || {
    echo "FAILED: slate replay: exit $?"
    cat "$work/errors"
    exit 1
}
awk '
    /"allocator": "/ { split($0, part, "\""); name = part[4] }
    /"rss_kb":/ { rss[name] = $2 + 0 }
    /"minor_faults":/ { faults[name] = $2 + 0 }
    END {
        never = "slate:never"; always = "slate:always"; mixed = "slate:switch"
        if (!(never in rss) || !(always in rss) || !(mixed in rss)) {
            print "FAILED: the results do not hold all three policies"
            exit 1
        }
        for (name in rss)
            printf "%s: %d faults, %d KiB\n", name, faults[name], rss[name]
        if (faults[mixed] >= 0.85 * faults[never]) {
            print "FAILED: switch has no fraction of the faults of never"
            bad = 1
        }
        if (faults[always] >= 0.25 * faults[never]) {
            print "FAILED: always has too many faults: there were no huge pages to be had"
            bad = 1
        }
        if (rss[always] <= rss[never] || rss[mixed] - rss[never] >= 0.25 * (rss[always] - rss[never])) {
            print "FAILED: switch takes more than a quarter of the memory that always costs above never"
            bad = 1
        }
        exit bad
    }' "$work/results.json"
