#!/usr/bin/env bash
# Checks `slate bench` and bench/results: tables and JSON of every comparison, faults of an
# allocator found, errors. Never looks at a time.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=cc}" "${SANITIZER:=}"
slate=$top_builddir/bench/slate
tiny=$top_srcdir/bench/traces/cc1-hello.slt
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}" LD_PRELOAD GLIBC_TUNABLES
failures=0

if [ ! -x "$slate" ]; then
    echo "bench: $slate is not built"
    exit 1
fi

fail() {
    echo "bench: $*"
    failures=$((failures + 1))
}

# bench STATUS ARGUMENT...: runs it, expects that exit code; output in $work/out and $work/errors.
bench() {
    local expected=$1 status=0
    shift
    "$slate" bench "$@" > "$work/out" 2> "$work/errors" || status=$?
    [ "$status" = "$expected" ] ||
        fail "bench $*: exit $status, not $expected: $(tail -n 3 "$work/errors")"
}

# refused WORDS ARGUMENT...: exit 2 before any run, one line on stderr with WORDS.
refused() {
    local words=$1
    shift
    bench 2 "$@"
    [ -s "$work/out" ] && fail "bench $*: output beside the error"
    [ "$(wc -l < "$work/errors")" = 1 ] || fail "bench $*: not one line: $(cat "$work/errors")"
    grep -qF -- "$words" "$work/errors" || fail "bench $*: \"$words\" missing in: $(cat "$work/errors")"
}

# narrow FILE: it fits 100 columns.
narrow() {
    local widest
    widest=$(awk '{ if (length > widest) widest = length } END { print widest + 0 }' "$1")
    [ "$widest" -le 100 ] || fail "${1##*/} is $widest columns wide"
}

# ---- errors --------------------------------------------------------------------------------------

refused 'a comparison is missing'
refused 'unknown comparison "frob"' frob
for name in micro contention append idle; do
    refused "bench $name: unknown option \"--frob\"" $name --frob
    refused "bench $name: unknown argument \"frob\"" $name frob
    refused 'option --runs wants a value' $name --runs
    refused '--runs "0": allowed is 1 to' $name --runs 0
    refused '--runs "2x": allowed is 1 to' $name --runs 2x
    refused 'unknown allocator "frob"' $name --with slate,frob
    refused '"slate" is named twice' $name --with slate,slate
    refused '"floor" is no allocator' $name --with slate,floor
    refused '/nonexistent/x.json: cannot be written' $name --with slate --json /nonexistent/x.json
    bench 0 $name --help
    grep -q -- '--with LIST' "$work/out" || fail "$name --help says nothing of --with"
done
refused 'unknown option "--threads"' micro --threads 2
refused 'unknown option "--time"' contention --time 2
refused '--time "0": allowed is 1 to' micro --time 0
refused '--threads "-1": allowed is 1 to' contention --threads -1
refused '--threads "100000": allowed is 1 to' contention --threads 100000
refused '--operations "many": allowed is 1 to' contention --operations many
refused 'unknown operation "frob"' micro --only pair_48,frob
refused 'unknown operation ""' micro --only pair_48,

# ---- micro: every operation on every kind --------------------------------------------------------

kinds=slate,slate:shared,call,call:never
[ -z "$SANITIZER" ] && kinds=$kinds,glibc
count=$(tr , '\n' <<< "$kinds" | wc -l)
bench 0 micro --help
operations=$(sed '1,/^Operations:/d' "$work/out" | wc -l)
[ "$operations" -ge 15 ] || fail "--help lists $operations operations"
bench 0 micro --time 1 --runs 2 --with "$kinds" --json "$work/micro.json"
narrow "$work/out"
# Every row of both tables has a number for each allocator; the second has two rows more.
rows=$(grep -cE "^.{27}( +[0-9]+(\.[0-9]+)?){$count}\$" "$work/out")
[ -n "$SANITIZER" ] || [ "$rows" = $((operations * 2 + 2)) ] ||
    fail "micro: $rows rows of $count numbers, not $((operations * 2 + 2)): $(cat "$work/out")"
[ "$(grep -c '"ns": [0-9.e+-]*[1-9]' "$work/micro.json")" = $((operations * count * 2)) ] ||
    fail "micro: JSON has not one time above 0 for each run"
[ "$(grep -c '"operations": [1-9]' "$work/micro.json")" = $((operations * count * 2)) ] ||
    fail "micro: JSON has not one count for each run"
for field in machine kernel cpu allocators bench results; do
    grep -q "\"$field\":" "$work/micro.json" || fail "micro: JSON lacks $field"
done
# The only peer is the best peer.
if [ -z "$SANITIZER" ]; then
    grep -qE '^geometric mean .* 1\.00$' "$work/out" || fail "micro: glibc is not 1.00 of itself"
fi

# More allocators than a line has room for.
many=$(seq -f 'name-%02.0f=slate' -s , 1 17)
bench 0 micro --time 1 --runs 1 --with "$many" --only pair_48,free_null --json "$work/many.json"
narrow "$work/out"
[ "$(grep -c '^48 B: alloc, free' "$work/out")" -ge 6 ] || fail "micro: 17 allocators, too few blocks of columns"
for name in name-01 name-17; do
    [ "$(grep -cw "$name" "$work/out")" = 2 ] || fail "micro: $name is not in both tables once"
done
grep -q '"operation": "in_order"' "$work/many.json" && fail "micro: --only runs others too"

# ---- contention ----------------------------------------------------------------------------------

bench 0 contention --threads 3 --operations 30000 --runs 2 --with "$kinds" --json "$work/contention.json"
narrow "$work/out"
[ "$(grep -cE '^(slate|call|glibc)' "$work/out")" = "$count" ] || fail "contention: not a row for each allocator"
[ "$(grep -c '"operations": 90000,' "$work/contention.json")" = $((count * 2)) ] ||
    fail "contention: not every run did 3 x 30,000 operations"
for field in wall_s cpu_s rss_kb; do
    [ "$(grep -c "\"$field\": [0-9.e+-]*[1-9]" "$work/contention.json")" = $((count * 2)) ] ||
        fail "contention: $field is not above 0 in each run"
done
bench 0 contention --threads 1 --operations 1 --runs 1 --with slate

# ---- append --------------------------------------------------------------------------------------

kinds=slate,slate:shared,doubling=call
[ -z "$SANITIZER" ] && kinds=$kinds,glibc
count=$(tr , '\n' <<< "$kinds" | wc -l)
bench 0 append --time 1 --runs 1 --with "$kinds" --json "$work/append.json" \
    --only bytes,behind_small,twice,twice_1,drained,small_100,long_4k
narrow "$work/out"
rows=$(grep -cE "^.{28}( +[0-9]+(\.[0-9]+)?){$count}\$" "$work/out")
[ "$rows" = 17 ] || fail "append: $rows rows of $count numbers, not 17: $(cat "$work/out")"
grep -qE '^100 B to 512 KiB +[0-9.]+$' "$work/out" || fail "append: no ratio to plain doubling"
# slate copies nothing, and sanitizers aside its peak is its payload.
sed -n '/^MiB moved/,/^$/p' "$work/out" | sed 1d | grep -E '^.{28} ' | grep -vqE '^.{28} +0\.0 +0\.0 ' &&
    fail "append: slate's buffer copies: $(cat "$work/out")"
[ "$(grep -c '"payload": [1-9]' "$work/append.json")" = $((count * 5)) ] || fail "append: not a payload for each run"
refused 'unknown operation "frob"' append --only frob
refused 'unknown option "--threads"' append --threads 2
refused '"region" is a region' append --with region

# ---- idle ----------------------------------------------------------------------------------------

kinds=slate,slate:shared
[ -z "$SANITIZER" ] && kinds=$kinds,glibc
bench 0 idle --threads 50 --operations 300 --runs 1 --with "$kinds" --json "$work/idle.json"
narrow "$work/out"
for way in kept dropped scratch; do
    [ "$(grep -cE "^slate(:shared)? +$way +[0-9]" "$work/out")" = 4 ] || fail "idle: not each row of $way: $(cat "$work/out")"
done
# An idle thread holds no scratch, and a kept block is held.
[ "$(grep -cE '^slate(:shared)? +scratch( +[0-9.]+){5} +0$' "$work/out")" = 2 ] || fail "idle: scratch is held"
grep -qE '^slate +kept( +[0-9.]+){5} +[0-9]{5,}$' "$work/out" || fail "idle: nothing is kept"
[ -n "$SANITIZER" ] || grep -qE '^glibc +scratch( +-){6}$' "$work/out" || fail "idle: scratch on glibc"
refused 'unknown option "--time"' idle --time 2

# ---- allocators that are at fault ----------------------------------------------------------------

cat > "$work/faulty.c" << 'END'
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static int is(const char *fault)
{
    const char *wanted = getenv("FAULT");
    return wanted && strcmp(wanted, fault) == 0;
}

void *malloc(size_t size)
{
    static _Thread_local char *last;
    if (size == 48 && is("crash"))
        __builtin_trap();
    if (size == 48 && is("none"))
        return NULL;
    char *block = __libc_malloc(size);
    if (size >= 16 && size < 20 && is("twice")) {
        if (last)
            return last;
        last = block;
    }
    return block;
}

void *calloc(size_t count, size_t size)
{
    char *block = __libc_calloc(count, size);
    if (count * size == 64 && is("dirty"))
        block[63] = 1;
    return block;
}

void *realloc(void *block, size_t size)
{
    char *moved = __libc_realloc(block, size);
    if (size == 108 && is("lost"))
        moved[0]++;
    return moved;
}

void free(void *block)
{
    if (is("twice"))
        return;
    __libc_free(block);
}
END
if [ -n "$SANITIZER" ]; then
    echo "bench: faulty allocators not tried, a sanitizer wants malloc for itself"
elif ! $CC -shared -fPIC -fno-builtin -o "$work/faulty.so" "$work/faulty.c" 2> "$work/log"; then
    echo "bench: faulty allocators not tried, no shared library can be made: $(head -n 1 "$work/log")"
else
    # faulty FAULT WORDS NAME ARGUMENT...: the fault is told, the others go on, exit 1.
    faulty() {
        local words=$2
        export FAULT=$1
        shift 2
        bench 1 "$@" --runs 1 --with "bad=path:$work/faulty.so,slate"
        grep -v '^bench: ' "$work/errors" > "$work/said"
        [ "$(wc -l < "$work/said")" = 1 ] || fail "$FAULT: not one line: $(cat "$work/said")"
        grep -qE -- "$words" "$work/said" || fail "$FAULT: \"$words\" missing in: $(cat "$work/said")"
        unset FAULT
    }
    micro=(micro --time 1 --only)
    bench 0 "${micro[@]}" pair_48,zero_64,grow_small --runs 1 --with "bad=path:$work/faulty.so"
    faulty crash 'bench micro: pair_48, allocator bad: killed by signal [0-9]+ \(' "${micro[@]}" pair_48
    grep -qE '^48 B: alloc, free +- +[0-9.]+$' "$work/out" || fail "crash: the table lacks what went on"
    faulty none 'pair_48, allocator bad: no memory for 48 bytes' "${micro[@]}" pair_48
    faulty dirty 'zero_64, allocator bad: a zeroed block of 64 bytes is not all zero' "${micro[@]}" zero_64
    faulty lost 'grow_small, allocator bad: block at 0x[0-9a-f]+ of 108 bytes changed' "${micro[@]}" grow_small
    faulty twice 'contention, allocator bad: block at 0x[0-9a-f]+ of [0-9]+ bytes changed' \
        contention --threads 1 --operations 20000
    grep -q '^bad  *failed' "$work/out" || fail "twice: the table does not say that it failed"
fi

# ---- bench/results -------------------------------------------------------------------------------

# results STATUS ARGUMENT...
results() {
    local expected=$1 status=0
    shift
    bash "$top_srcdir/bench/results" --program "$slate" --output "$work/RESULTS" "$@" > "$work/out" 2> "$work/errors" ||
        status=$?
    [ "$status" = "$expected" ] || fail "results $*: exit $status, not $expected: $(tail -n 3 "$work/errors")"
}

results 2 --frob
results 2 --runs none
results 2 --runs
results 2 --all "$work"
results 2 --runs 1 --quick --with frob "$tiny"
[ -e "$work/RESULTS" ] && fail "results: a file after wrong usage"
if [ -n "$SANITIZER" ]; then
    echo "bench: bench/results not tried, a sanitizer wants malloc for itself"
else
    mkdir "$work/further"
    cp "$tiny" "$work/further/again.slt"
    cp "$tiny" "$work/further"
    with=()
    [ -e "$work/faulty.so" ] && with=(--with "extra=path:$work/faulty.so")
    results 0 --runs 1 --quick "${with[@]}" --all "$work/further" "$tiny"
    narrow "$work/RESULTS"
    for line in 'command  *bench/results --runs 1 --quick' 'date  *20' 'kernel  *Linux' 'cpu  *.' 'memory  *[0-9]' \
        'huge pages  *enabled' 'cc1-hello  *cpu s' 'again  *cpu s' 'slate:shared  *[0-9]' 'call:shared  *[0-9]' \
        'all 2 traces' 'micro: nano' 'contention: 2 threads' 'geometric mean'; do
        grep -q "^$line" "$work/RESULTS" || fail "results: no line \"$line\""
    done
    [ ${#with[@]} = 0 ] || [ "$(grep -cw '^extra' "$work/RESULTS")" -ge 5 ] || fail "results: the further allocator is missing"
    grep -nE "$work|^[^0-9]*[ =:]/[a-z]" "$work/RESULTS" && fail "results: a path is in the file"
    [ "$(find "$work" -name 'RESULTS?*' | wc -l)" = 0 ] || fail "results: a temporary is left"
fi

[ "$failures" = 0 ] && echo "bench: all as it should be"
[ "$failures" = 0 ]
