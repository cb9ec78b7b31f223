#!/usr/bin/env bash
# Checks `slate replay`: results of every kind of allocator, faults of an allocator found and told
# with trace and record, output, errors.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=cc}" "${SANITIZER:=}"
slate=$top_builddir/bench/slate
tiny=$top_srcdir/bench/traces/cc1-hello.slt
threaded=$top_srcdir/bench/traces/lld-static.slt
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}" LD_PRELOAD GLIBC_TUNABLES
failures=0

if [ ! -x "$slate" ]; then
    echo "replay: $slate is not built"
    exit 1
fi

fail() {
    echo "replay: $*"
    failures=$((failures + 1))
}

# replay STATUS ARGUMENT...: runs it, expects that exit code; output in $work/out and $work/errors.
replay() {
    local expected=$1 status=0
    shift
    "$slate" replay --touch none "$@" > "$work/out" 2> "$work/errors" || status=$?
    [ "$status" = "$expected" ] ||
        fail "replay $*: exit $status, not $expected: $(tail -n 3 "$work/errors")"
}

# refused WORDS ARGUMENT...: exit 2 before any run, one line on stderr with WORDS.
refused() {
    local words=$1
    shift
    replay 2 "$@"
    [ -s "$work/out" ] && fail "replay $*: output beside the error"
    [ "$(wc -l < "$work/errors")" = 1 ] || fail "replay $*: not one line: $(cat "$work/errors")"
    grep -qF -- "$words" "$work/errors" || fail "replay $*: \"$words\" missing in: $(cat "$work/errors")"
}

# reported WORDS: the last replay said so on one line of stderr.
reported() {
    grep -v '^replay: ' "$work/errors" > "$work/said"
    [ "$(wc -l < "$work/said")" = 1 ] || fail "not one line: $(cat "$work/said")"
    grep -qE -- "$1" "$work/said" || fail "\"$1\" missing in: $(cat "$work/said")"
}

# ---- regions -------------------------------------------------------------------------------------

# Three phases: objects end in their phase or live to its end; in later ones objects of the first are
# freed and reallocated.  A zstd frame of one raw block.
records='\x07\x01a\x01\x28\x02\x40\x01\x64\x04\x01\x03\x02\x7f\x07\x01b\x01\x30\x04\x05\x03\x02\x50\x07\x01c\x01\x10\x04\x01\x00'
length=$(printf "$records" | wc -c)
# shellcheck disable=SC2059
{
    printf 'SLTRACE\001\x28\xb5\x2f\xfd\x20'
    printf "\\x$(printf %02x "$length")\\x$(printf %02x $(((length << 3 | 1) & 255)))\\x$(printf %02x $((length >> 5)))\\x00"
    printf "$records"
} > "$work/phases.slt"
"$slate" stat "$work/phases.slt" > "$work/out" 2>&1 || fail "phases.slt is no trace: $(cat "$work/out")"
for trace in "$work/phases.slt" "$tiny" "$threaded"; do
    names="region region:never region:shared"
    [ "$trace" = "$threaded" ] && names=region
    replay 0 --as-region --check --runs 1 --json "$work/regions.json" --with "floor,${names// /,},built" "$trace"
    for name in $names slab; do
        grep -q "^$name .*[0-9]" "$work/out" || fail "--as-region ${trace##*/}: no row of $name"
    done
    grep -q 'failed' "$work/out" && fail "--as-region ${trace##*/}: $(cat "$work/out")"
    grep -q '"rss_kb"' "$work/regions.json" || fail "--as-region: no results in the JSON"
done
refused '"slate" is no region; allowed: region' --as-region --with region,slate "$tiny"
refused '"region" is a region: slate replay --as-region' --with glibc,region "$tiny"
refused 'unknown policy "frob"' --as-region --with region:frob "$tiny"

# ---- errors --------------------------------------------------------------------------------------

refused 'a trace is missing'
refused 'unknown option "--frob"' --frob "$tiny"
refused 'option --runs wants a value' "$tiny" --runs
refused '--runs "0": allowed is 1 to' --runs 0 "$tiny"
refused '--runs "3x": allowed is 1 to' --runs 3x "$tiny"
refused '--touch "often": allowed is all, first or none' --touch often "$tiny"
refused 'unknown allocator "frob"' --with floor,frob "$tiny"
refused 'unknown policy "frob"' --with slate:frob "$tiny"
refused 'unknown setting "SLATE_FROB"' --with slate:never:SLATE_FROB=1 "$tiny"
refused '"glibc" is named twice' --with glibc,glibc "$tiny"
refused 'name is empty' --with glibc,,floor "$tiny"
refused 'No such file' --with path:/nonexistent.so "$tiny"
refused 'not a shared library' --with "path:$tiny" "$tiny"
refused '--base "slate" is not among the allocators' --with floor,glibc --base slate "$tiny"
refused "$work/none.slt: cannot be opened: No such file" --with glibc "$tiny" "$work/none.slt"
refused '/nonexistent/x.json: cannot be written' --with glibc --json /nonexistent/x.json "$tiny"
refused '/dev/null: cannot be written: it is there and no plain file' --with glibc --json /dev/null "$tiny"
printf 'SLTRACE\002xxxxxxxxxxxxxxxx' > "$work/magic.slt"
refused "$work/magic.slt: record 0: not a trace" --with glibc "$work/magic.slt"

# A trace with a malformed record ends the whole with exit 2.
printf 'SLTRACE\001xxxxxxxxxxxxxxxx' > "$work/zstd.slt"
replay 2 --with glibc --runs 1 "$work/zstd.slt"
reported "$work/zstd.slt: record 1: the zstd stream is damaged"

# ---- every kind of allocator, every byte checked -------------------------------------------------

kinds=floor,slate,slate:never,slate:always,slate:switch,call,call:never,slate:never:SLATE_ORDER=lifo
[ -z "$SANITIZER" ] && kinds=$kinds,glibc,glibc+thp
count=$(tr , '\n' <<< "$kinds" | wc -l)
replay 0 --check --runs 2 --with floor,slate --json "$work/twice.json" "$tiny"
[ "$(grep -c '"wall_s":' "$work/twice.json")" = 4 ] || fail "not two results of each for --runs 2"
replay 0 --check --runs 1 --with "$kinds" --json "$work/all.json" "$tiny" "$threaded"
widest=$(awk '{ if (length > widest) widest = length } END { print widest + 0 }' "$work/out")
[ "$widest" -le 100 ] || fail "the table is $widest columns wide"
[ "$(grep -c '^median ' "$work/out")" = 2 ] || fail "not one table of medians a trace"
grep -q '^all 2 traces' "$work/out" || fail "no summary over all traces"

# number FIELD: its values in the JSON, one a line.
numbers() {
    sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$work/all.json"
}

for field in wall_s user_s sys_s rss_kb minor_faults anon_huge_kb page_table_kb; do
    [ "$(numbers "$field" | wc -l)" = $((count * 2)) ] || fail "JSON: $field is not there for each run"
done
for field in machine results kernel cpu cores memory_kb page_bytes huge_page_sizes_kb khugepaged enabled defrag \
    slate libc allocators date; do
    grep -q "\"$field\":" "$work/all.json" || fail "JSON: $field is missing"
done
[ "$(find "$work" -name 'all.json?*' | wc -l)" = 0 ] || fail "JSON: a temporary is left"

# of ALLOCATOR TRACE FIELD: the first run's value.
of() {
    awk -v allocator="\"$1\"," -v trace="\"$2\"," -v field="\"$3\":" '
        $1 == "\"trace\":" { here = $2 == trace }
        $1 == "\"allocator\":" { here = here && $2 == allocator }
        here && $1 == field { sub(/,/, "", $2); print $2; exit }' "$work/all.json"
}

# The trace has 1,917,085 bytes live at its end and 2,466,583 at its peak: less cannot be right, and
# the floor, which has no allocator, must not grow with them.
for allocator in slate slate:never call; do
    [ "$(of $allocator cc1-hello rss_kb)" -gt 2400 ] || fail "$allocator: RSS growth is below the live bytes"
    [ "$(of $allocator cc1-hello minor_faults)" -gt 0 ] || fail "$allocator: no faults"
done
if [ -z "$SANITIZER" ]; then
    [ "$(of floor cc1-hello rss_kb)" -lt 1024 ] || fail "floor: its memory grew"
    [ "$(of floor lld-static rss_kb)" -lt 4096 ] || fail "floor: its memory grew with threads"
    [ "$(of floor lld-static minor_faults)" -lt 500 ] || fail "floor: it faulted"
    [ "$(of glibc lld-static rss_kb)" -gt 190000 ] || fail "glibc: RSS growth is below the live bytes"
fi

# ---- names, base, settings -----------------------------------------------------------------------

replay 0 --runs 1 --with one=slate,two=slate:never:SLATE_SWITCH=4M --base two "$tiny"
grep -q '^one ' "$work/out" && grep -q '^x two ' "$work/out" || fail "labels or the base are not in the table"
replay 0 --runs 1 --with loud=slate:SLATE_VERBOSE=1 "$tiny"
grep -q 'slate' "$work/errors" || fail "a setting does not reach the child"
replay 0 --list
grep -q '^floor' "$work/out" && grep -q '^slate:switch' "$work/out" && grep -q '^glibc' "$work/out" ||
    fail "--list lacks allocators"
replay 0 --help
grep -q -- '--with LIST' "$work/out" || fail "--help says nothing of --with"

# A cut-short trace is used, with a warning.
head -c 4000 "$tiny" > "$work/cut.slt"
replay 0 --runs 1 --with floor,slate "$work/cut.slt"
reported 'cut.slt: warning: cut short, used up to its [1-9][0-9]* allocation calls'

# ---- allocators that are at fault ----------------------------------------------------------------

cat > "$work/faulty.c" << 'END'
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void __libc_free(void *);

/* The tiny trace's first block of this size is asked for by its record 3366. */
static int is(const char *fault)
{
    const char *wanted = getenv("FAULT");
    return wanted && strcmp(wanted, fault) == 0;
}

void *malloc(size_t size)
{
    static char *last;
    if (size == 8032 && is("crash"))
        __builtin_trap();
    if (size == 8032 && is("exit"))
        _Exit(7);
    if (size == 8032 && is("none"))
        return NULL;
    char *block = __libc_malloc(size + 16);
    if (size == 8032 && is("twice")) {
        if (last)
            return last;
        last = block;
    }
    return block;
}

void *calloc(size_t count, size_t size)
{
    char *block = __libc_calloc(count, size + 16);
    if (count * size > 1000 && is("dirty"))
        block[count * size - 1] = 1;
    return block;
}

void free(void *block)
{
    if (is("twice"))
        return;
    __libc_free(block);
}
END
echo 'int not_an_allocator;' > "$work/empty.c"
if [ -n "$SANITIZER" ]; then
    echo "replay: faulty allocators not tried, a sanitizer wants malloc for itself"
elif ! $CC -shared -fPIC -fno-builtin -o "$work/faulty.so" "$work/faulty.c" 2> "$work/log" ||
    ! $CC -shared -fPIC -o "$work/empty.so" "$work/empty.c" 2>> "$work/log"; then
    echo "replay: faulty allocators not tried, no shared library can be made: $(head -n 1 "$work/log")"
else
    # faulty FAULT WORDS: the fault is told with trace and allocator, the others go on, exit 1.
    faulty() {
        FAULT=$1 replay 1 --runs 1 --with "slate,bad=path:$work/faulty.so,floor" "$tiny"
        reported "$2"
        grep -q '^bad  *failed' "$work/out" || fail "$1: the table does not say that it failed"
        grep -q '^floor .*[0-9]' "$work/out" || fail "$1: the rest did not go on"
    }
    FAULT=nothing replay 0 --check --runs 1 --with "bad=path:$work/faulty.so" "$tiny"
    faulty crash 'trace cc1-hello, allocator bad: killed by signal [0-9]+ \('
    faulty exit 'trace cc1-hello, allocator bad: ended early with exit code 7'
    faulty none 'trace cc1-hello, allocator bad: record 3366: no memory for 8032 bytes'
    faulty twice 'trace cc1-hello, allocator bad: record [1-9][0-9]*: block at 0x[0-9a-f]+ of 8032 bytes changed'
    faulty dirty 'trace cc1-hello, allocator bad: record [1-9][0-9]*: block at 0x[0-9a-f]+ of [0-9]+ bytes is not all zero'
    replay 1 --runs 1 --with "slate,path:$work/empty.so" "$tiny"
    reported 'trace cc1-hello, allocator empty: its library was not loaded or has no malloc'
fi

[ "$failures" = 0 ] && echo "replay: all as it should be"
[ "$failures" = 0 ]
