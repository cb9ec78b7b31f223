#!/usr/bin/env bash
# Checks that `slate stat --json` says of every bundled trace what the .json beside it says, and that
# the text and the errors are as they should be.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
slate=$top_builddir/bench/slate
traces=$top_srcdir/bench/traces
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
failures=0

if [ ! -x "$slate" ]; then
    echo "stat: $slate is not built"
    exit 1
fi

fail() {
    echo "stat: $*"
    failures=$((failures + 1))
}

# flat FILE: one "path value" a line, sorted, of JSON with each member or element on a line or in a
# list on one line.
flat() {
    tr -d '\n' < "$1" | awk '
        # Reads the whole text character by character; values are told by their path.
        function flush_value() {
            if (token != "") {
                if (token ~ /^-?[0-9]/)
                    token = sprintf("%.15g", token) # 2e-05 and 2e-5 are the same
                print path() " " token
                token = ""
            }
        }
        function path(    i, text) {
            text = ""
            for (i = 1; i <= depth; i++)
                text = text "/" (kind[i] == "{" ? key[i] : index_of[i])
            return text
        }
        {
            length_of_text = length($0)
            for (at = 1; at <= length_of_text; at++) {
                c = substr($0, at, 1)
                if (c == "\"") {
                    start = at
                    for (at++; (c = substr($0, at, 1)) != "\""; at++)
                        if (c == "\\")
                            at++
                    word = substr($0, start, at - start + 1)
                    if (kind[depth] == "{" && !has_key) {
                        key[depth] = word
                        has_key = 1
                    } else
                        token = word
                } else if (c == "{" || c == "[") {
                    kind[++depth] = c
                    index_of[depth] = 0
                    has_key = 0
                } else if (c == "}" || c == "]") {
                    flush_value()
                    depth--
                    has_key = kind[depth] == "{"
                } else if (c == ",") {
                    flush_value()
                    index_of[depth]++
                    has_key = 0
                } else if (c !~ /[ :\t]/)
                    token = token c
            }
        }' | sort
}

# ---- the reader of JSON above must be able to find a difference ----------------------------------

printf '{\n "a": [1, 2],\n "b": {"c": "x,y", "d": 5e-01}\n}\n' > "$work/example.json"
printf '/"a"/0 1\n/"a"/1 2\n/"b"/"c" "x,y"\n/"b"/"d" 0.5\n' > "$work/expected"
flat "$work/example.json" | cmp -s - "$work/expected" || fail "this test cannot read JSON"

# ---- every bundled trace -------------------------------------------------------------------------

compared=0
for trace in "$traces"/*.slt; do
    name=$(basename "$trace" .slt)
    "$slate" stat --json "$trace" > "$work/$name.json" 2> "$work/errors" || fail "$name: exit $?"
    [ -s "$work/errors" ] && fail "$name: $(cat "$work/errors")"
    flat "$work/$name.json" > "$work/made"
    # Who made the trace and what the unrecorded program took cannot be told from it.
    flat "$traces/$name.json" | grep -vE '^/"(program|input|unrecorded_glibc)"' > "$work/recorded"
    [ "$(wc -l < "$work/recorded")" -gt 100 ] || fail "$name: too little in the .json beside it"
    if ! diff "$work/recorded" "$work/made" > "$work/difference"; then
        fail "$name: recorded (<) and made (>) differ:"
        head -n 20 "$work/difference"
    fi
    compared=$((compared + 1))
done
[ "$compared" -gt 0 ] || fail "no traces in $traces"

# ---- text ----------------------------------------------------------------------------------------

"$slate" stat "$traces/cc1-hello.slt" > "$work/text" || fail "text: exit $?"
grep -q 'malloc 9282 calloc 1622 realloc 537 free 8126' "$work/text" || fail "text: the calls are missing"
grep -q '3089 objects' "$work/text" || fail "text: the peak is missing"
[ "$("$slate" stat --json "$traces/cc1-hello.slt" "$traces/cc1-hello.slt" | grep -c '"name"')" = 2 ] ||
    fail "two traces do not give two objects"

# ---- errors: one line, exit 2 --------------------------------------------------------------------

# refused WORDS ARGUMENT...: exit 2, nothing on stdout, one line on stderr with WORDS.
refused() {
    local words=$1 status=0
    shift
    "$slate" stat "$@" > "$work/out" 2> "$work/errors" || status=$?
    [ "$status" = 2 ] || fail "stat $*: exit $status, not 2"
    [ -s "$work/out" ] && fail "stat $*: output beside the error"
    [ "$(wc -l < "$work/errors")" = 1 ] || fail "stat $*: not one line: $(cat "$work/errors")"
    grep -qF -- "$words" "$work/errors" || fail "stat $*: \"$words\" missing in: $(cat "$work/errors")"
}

refused 'a trace is missing'
refused 'unknown option "--frob"' --frob
refused 'cannot be opened: No such file' "$work/none.slt"
printf 'SLTRACE\002xxxxxxxxxxxxxxxx' > "$work/magic.slt"
refused "$work/magic.slt: record 0: not a trace" "$work/magic.slt"
printf 'SLTRACE\001xxxxxxxxxxxxxxxx' > "$work/zstd.slt"
refused "$work/zstd.slt: record 1: the zstd stream is damaged" "$work/zstd.slt"

# A trace that was cut short is used, with a warning.
head -c 4000 "$traces/cc1-hello.slt" > "$work/cut.slt"
"$slate" stat --json "$work/cut.slt" > "$work/cut.json" 2> "$work/errors" || fail "cut short: exit $?"
grep -q 'cut.slt: warning: cut short' "$work/errors" || fail "cut short: no warning"
grep -q '"complete": false' "$work/cut.json" || fail "cut short: called complete"

[ "$failures" = 0 ] && echo "stat: $compared traces agree with what was recorded beside them"
[ "$failures" = 0 ]
