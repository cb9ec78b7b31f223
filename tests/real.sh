#!/usr/bin/env bash
# Checks `slate real`, bench/real and the section that they fill in bench/RESULTS: tables, JSON,
# what is counted, programs that fail, errors. Never looks at a time.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=cc}" "${SANITIZER:=}"
slate=$top_builddir/bench/slate
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}" LD_PRELOAD GLIBC_TUNABLES
failures=0

if [ ! -x "$slate" ]; then
    echo "real: $slate is not built"
    exit 1
fi

fail() {
    echo "real: $*"
    failures=$((failures + 1))
}

# tried STATUS COMMAND...: runs it, expects that exit code; output in $work/out and $work/errors.
tried() {
    local expected=$1 status=0
    shift
    "$@" > "$work/out" 2> "$work/errors" || status=$?
    [ "$status" = "$expected" ] || fail "$*: exit $status, not $expected: $(tail -n 3 "$work/errors")"
}

# refused WORDS COMMAND...: exit 2 before any run, one line on stderr with WORDS.
refused() {
    local words=$1
    shift
    tried 2 "$@"
    [ -s "$work/out" ] && fail "$*: output beside the error"
    [ "$(wc -l < "$work/errors")" = 1 ] || fail "$*: not one line: $(cat "$work/errors")"
    grep -qF -- "$words" "$work/errors" || fail "$*: \"$words\" missing in: $(cat "$work/errors")"
}

real=("$slate" real --touch none --runs 1)
script=(bash "$top_srcdir/bench/real" --program "$slate" --inputs "$work/inputs")

# listed NAME CHECK WORD...: makes $work/list of one program.
listed() {
    local IFS=$'\t'
    printf '%s\n' "$1"$'\t'"$2"$'\t'"$work"$'\t'"${*:3}" > "$work/list"
}

# ---- errors --------------------------------------------------------------------------------------

refused 'a command is missing' "${real[@]}"
refused 'unknown option "--frob"' "${real[@]}" --frob
refused 'option --with wants a value' "${real[@]}" --with
refused '--runs "0": allowed is 1 to 1000' "$slate" real --runs 0 true
refused '--timeout "1s": allowed is 1 to' "${real[@]}" --timeout 1s true
refused '--touch "first": allowed is all or none' "${real[@]}" --touch first true
refused 'unknown allocator "frob"' "${real[@]}" --with frob true
refused '"floor" is no malloc for whole programs' "${real[@]}" --with glibc,floor true
refused '"call:never" is no malloc for whole programs' "${real[@]}" --with call:never true
refused '--base "slate" is not among the allocators' "${real[@]}" --with glibc --base slate true
refused '/nonexistent/x: cannot be written' "${real[@]}" --with glibc --json /nonexistent/x true
refused '/nonexistent/x: cannot be written' "${real[@]}" --with glibc --table /nonexistent/x true
refused "$work/none: No such file" "${real[@]}" --programs "$work/none"
listed name - true
refused 'a command beside --programs' "${real[@]}" --programs "$work/list" true
# Each line, and what is said of it.
while IFS='|' read -r line words; do
    printf "# a comment\n\n$line\n" > "$work/list"
    refused "$work/list: line 3: $words" "${real[@]}" --with glibc --programs "$work/list"
done << 'END'
name\t-\t/|name, check, directory and command are wanted
\t-\t/\ttrue|a name has 1 to 63 bytes
name\tout\t/\ttrue|to be checked is "-", "stdout" or a file's whole path
name\t-\there\ttrue|the directory is no whole path
name\t-\t/\tA=b|the command is missing
name\t-\t/\t|the command is missing
END
printf 'one\t-\t/\ttrue\none\t-\t/\ttrue\n' > "$work/list"
refused "$work/list: line 2: a program of that name was there before" "${real[@]}" --programs "$work/list"
: > "$work/list"
refused "$work/list: line 0: no program" "${real[@]}" --programs "$work/list"

refused 'unknown argument "--frob"' "${script[@]}" --frob
refused '--runs takes a number' "${script[@]}" --runs many
refused '--only needs a value' "${script[@]}" --only
refused '--only: unknown program "frob"; allowed: cc1 clang++' "${script[@]}" --only cc1,frob
refused '--policies: unknown policy "frob"; allowed: never, always, switch, shared' "${script[@]}" --policies frob
refused '--with takes NAME=PATH, not "frob"' "${script[@]}" --with frob
refused 'the file cannot be read' "${script[@]}" --with frob=/nonexistent.so
refused '"/proc/x" cannot be written' "${script[@]}" --inputs /proc/x
refused "\"$work/list\" cannot be run" "${script[@]}" --program "$work/list"
tried 0 "${script[@]}" --help
grep -q -- '--inputs DIR .*default: /' "$work/out" || fail "--help does not tell where the inputs are"

if [ -n "$SANITIZER" ] || [ ! -e "$top_builddir/lib/.libs/libslate-malloc.so" ]; then
    [ "$failures" = 0 ] || exit 1
    echo "skipped: libslate-malloc.so is not built (a sanitizer, or --disable-shared)"
    exit 77
fi

# ---- what is run and counted ---------------------------------------------------------------------

row='[0-9]+\.[0-9]{3} +[0-9]+\.[0-9]{3} +[0-9]+\.[0-9]{3} +[0-9]+\.[0-9] +[0-9]+( +[0-9]+\.[0-9]{3}){4}$'

listed touching - A=b "B=c d" sh -c 'echo "$A $B $PWD $# $1" > seen; head -c 100000000 /dev/zero | tail | wc -c' x '1 2'
tried 0 "$slate" real --touch none --runs 2 --with glibc,slate:shared --programs "$work/list" --json "$work/json" --table "$work/table"
[ "$(cat "$work/seen")" = "b c d $work 1 1 2" ] || fail "the command got \"$(cat "$work/seen")\""
for label in glibc slate:shared; do
    for file in out table; do
        [ "$(grep -cE "^$label +$row" "$work/$file")" = 1 ] || fail "no row $label in: $(cat "$work/$file")"
    done
done
awk 'length > 100 { bad = 1 } END { exit bad }' "$work/out" "$work/table" || fail "wider than 100 columns"
grep -qE '^slate:shared +libslate-malloc\.so\.' "$work/table" || fail "the table does not tell slate's library"
grep -q 'base: glibc' "$work/table" || fail "the table does not tell the base"
[ "$(grep -c '"wall_s": ' "$work/json")" = 4 ] || fail "JSON has not 2 runs of 2 allocators"
# tail keeps all of it: it is the largest process of three.
[ "$(awk -F'[ ,]+' '/"rss_kb"/ && $3 > 97000 && $3 < 400000' "$work/json" | wc -l)" = 4 ] ||
    fail "the largest process has not 100 MB: $(grep rss_kb "$work/json")"
[ "$(awk -F'[ ,]+' '/"minor_faults"/ && $3 > 0' "$work/json" | wc -l)" = 4 ] || fail "no faults were counted"
for field in machine kernel programs command results; do
    grep -q "\"$field\":" "$work/json" || fail "JSON lacks $field"
done

# A command of one's own; nothing of ours is passed on but the allocator.
LD_PRELOAD='' GLIBC_TUNABLES=a tried 0 "${real[@]}" --with slate:never -- sh -c \
    'test "$SLATE_POLICY ${GLIBC_TUNABLES-none}" = "never none" && case $LD_PRELOAD in */libslate-malloc.so.*) ;; *) exit 1 ;; esac'
grep -qE "^slate:never +[0-9.]+ .* 1\.000 +- +-$" "$work/out" || fail "a command of one's own: $(cat "$work/out")"

# ---- programs that fail: told, the rest goes on, exit 1 ------------------------------------------

# fails WORDS [SECONDS]: the list's program fails on slate alone.
fails() {
    tried 1 "${real[@]}" --timeout "${2:-60}" --with glibc,slate --programs "$work/list" --json "$work/json"
    grep '^slate: ' "$work/errors" > "$work/said"
    [ "$(wc -l < "$work/said")" = 1 ] || fail "not one line: $(cat "$work/said")"
    grep -qF "real: odd, allocator slate: $1" "$work/said" || fail "\"$1\" missing in: $(cat "$work/said")"
    grep -qE "^glibc +$row" "$work/out" || fail "$1: glibc's row is missing: $(cat "$work/out")"
    grep -qE '^slate +failed$' "$work/out" || fail "$1: the table does not say that it failed"
    grep -q '"failed": true' "$work/json" || fail "$1: the JSON does not say that it failed"
}

listed odd stdout sh -c 'echo "${LD_PRELOAD-none}"'
fails 'what it put out is not what it put out on glibc'
listed odd "$work/made" sh -c 'echo "${LD_PRELOAD-none}" > made'
fails 'what it put out is not what it put out on glibc'
listed odd "$work/made" sh -c 'test "$LD_PRELOAD" || echo > made'
fails "$work/made: No such file"
listed odd - sh -c 'test -z "$LD_PRELOAD" || { echo out; echo some words >&2; exit 3; }'
fails 'exit status 3: some words'
listed odd - sh -c 'test -z "$LD_PRELOAD" || { echo out; exit 3; }'
fails 'exit status 3: out'
listed odd - sh -c 'test -z "$LD_PRELOAD" || kill -SEGV $$'
fails 'killed by signal 11 ('
listed odd - sh -c 'test -z "$LD_PRELOAD" || sleep 60'
fails 'was ended after 1 seconds' 1
tried 1 "${real[@]}" --with glibc -- "$work/none"
grep -qF "allocator glibc: $work/none: No such file" "$work/errors" || fail "a missing command: $(cat "$work/errors")"

echo 'int slate_real_test;' > "$work/empty.c"
$CC -shared -fPIC -o "$work/empty.so" "$work/empty.c" || fail "the library without malloc does not compile"
tried 1 "${real[@]}" --with "path:$work/empty.so" true
grep -qF 'allocator empty: its library was not loaded or has no malloc' "$work/errors" ||
    fail "a library without malloc: $(cat "$work/errors")"

# ---- bench/real and bench/RESULTS ----------------------------------------------------------------

printf '%s\n' 'Results' '' 'Other' '-----' '' 'kept 1' '' 'Real programs' '-------------' '' 'old' '' 'More' '----' '' 'kept 2' \
    > "$work/RESULTS"
tried 0 "${script[@]}" --only cc1 --runs 1 --allocators glibc,slate --with "again=$top_builddir/lib/.libs/libslate-malloc.so" \
    --append --output "$work/RESULTS"
for label in glibc slate:shared slate:switch again; do
    [ "$(grep -cE "^$label +$row" "$work/out")" = 1 ] || fail "bench/real: no row $label in: $(cat "$work/out")"
    [ "$(grep -cE "^$label +$row" "$work/RESULTS")" = 1 ] || fail "RESULTS: no row $label"
done
grep -qE '^cc1 +user s +sys s +wall s +RSS MiB +faults cpu/base RSS/base cpu/best RSS/best$' "$work/out" ||
    fail "bench/real: no title in: $(cat "$work/out")"
[ -e "$work/inputs/small.c" ] || fail "bench/real: the input is not where --inputs says"
[ "$(grep -cE '^(kept 1|kept 2|Other|More|Real programs)$' "$work/RESULTS")" = 5 ] ||
    fail "RESULTS: something is lost: $(cat "$work/RESULTS")"
grep -q '^old$' "$work/RESULTS" && fail "RESULTS: the old section is there still"
for line in 'command  *bench/real --only cc1 --runs 1' 'date  *20' 'kernel  *Linux' 'Medians of 1 runs'; do
    grep -q "^$line" "$work/RESULTS" || fail "RESULTS: no line \"$line\""
done
grep -nE "$work|^[^0-9]*[ =:]/[a-z]" "$work/RESULTS" && fail "RESULTS: a path is in the file"
# The section stays as the rest is measured again.
sed -n '/^Real programs$/,$p' "$work/RESULTS" > "$work/before"
tried 0 bash "$top_srcdir/bench/results" --program "$slate" --quick --runs 1 --output "$work/RESULTS" \
    "$top_srcdir/bench/traces/cc1-hello.slt"
grep -q '^Contention$' "$work/RESULTS" || fail "results: no new sections"
sed -n '/^Real programs$/,$p' "$work/RESULTS" | cmp -s - "$work/before" || fail "results: the section is not what it was"
tried 2 bash "$top_srcdir/bench/results" --real "$work/nothing" --output "$work/RESULTS"
[ "$(find "$work" -name 'RESULTS?*' | wc -l)" = 0 ] || fail "a temporary is left"

[ "$failures" = 0 ] && echo "real: all as it should be"
[ "$failures" = 0 ]
