#!/usr/bin/env bash
# Gives each tunable good and bad values through the environment of a program: good ones are taken
# silently, a bad one is reported in exactly one line and the default is used.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_builddir:=$(pwd)}" "${SANITIZER:=}"
program=$top_builddir/tests/ladder_program
slate=$top_builddir/bench/slate
if [ -n "$SANITIZER" ]; then
    echo "skipped: ladder_program needs the address space that sanitizers take"
    exit 77
fi
if [ ! -x "$program" ]; then
    echo "tunables.sh: $program is missing: run make check" >&2
    exit 1
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
status=0
tried=0
wrong() {
    echo "FAILED: $*"
    sed 's/^/    /' "$work/errors"
    status=1
}

run() {
    tried=$((tried + 1))
    env "$@" "$program" --short > "$work/output" 2> "$work/errors" || wrong "$*: exit $?"
}

# good NAME VALUE...: taken, and nothing is said.
good() {
    local name=$1 value
    shift
    for value; do
        run "$name=$value"
        [ -s "$work/errors" ] && wrong "$name=\"$value\" is good, but was reported"
    done
    seen="$seen $name"
}

# bad NAME DEFAULT VALUE...: one line that names the variable, the value and the default.
bad() {
    local name=$1 default=$2 value
    shift 2
    for value; do
        run "$name=$value"
        [ "$(wc -l < "$work/errors")" = 1 ] || wrong "$name=\"$value\" is bad: not exactly one line"
        grep -qF "slate: $name=\"$value\": allowed is " "$work/errors" ||
            wrong "$name=\"$value\": the report does not name variable and value"
        grep -qF "the default $default is used" "$work/errors" ||
            wrong "$name=\"$value\": the report does not name the default"
    done
}

# verbose SETTING... -- PATTERN: what slate says it set up.
verbose() {
    local settings=()
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    run SLATE_VERBOSE=1 "${settings[@]}"
    [ "$(wc -l < "$work/errors")" = 1 ] || wrong "SLATE_VERBOSE=1 ${settings[*]}: not exactly one line"
    grep -qE "^slate: .*$2" "$work/errors" || wrong "SLATE_VERBOSE=1 ${settings[*]}: no \"$2\""
}

unset "${!SLATE_@}"
seen=
run IGNORED=1
[ -s "$work/errors" ] && wrong "without settings something was printed"

default_policy=$($slate --help-tunables 2>/dev/null | sed -n '/^SLATE_POLICY/,/default:/s/.*default: //p')
good SLATE_POLICY never always switch shared
bad SLATE_POLICY "${default_policy:-switch}" "" Never sometimes "never " "shared,never" 1
good SLATE_SWITCH 0 1 4096 8m 8M 2048K 1G 1T
bad SLATE_SWITCH 8M "" M -1 +1 8MB "8 M" 0x10 1.5M 2T 99999999999999999999 18446744073709551615T
good SLATE_ARENAS 2 3 64 1023
bad SLATE_ARENAS 64 "" 0 1 1024 -2 many 2.0
good SLATE_SCRATCH 0 1 64K 1G 12345
bad SLATE_SCRATCH 64K "" 2G 1T huge -1
good SLATE_SLICE 16M 17M 1G 64G 4294967296
bad SLATE_SLICE 4G "" 0 15M 65G 1T huge -4G
good SLATE_ORDER bounded lifo
bad SLATE_ORDER bounded "" fifo LIFO
good SLATE_STATS 0
bad SLATE_STATS 0 "" 2 yes text JSON
good SLATE_VERBOSE 0
bad SLATE_VERBOSE 0 "" 2 -1 yes

# Taken means taken.
for policy in never always switch shared; do
    verbose SLATE_POLICY=$policy -- "policy $policy,"
done
verbose SLATE_POLICY=switch SLATE_SWITCH=16M -- 'switch point 16 MiB'
verbose SLATE_POLICY=switch SLATE_ARENAS=5 -- 'arenas 5,'
verbose SLATE_POLICY=switch SLATE_SLICE=64M -- 'class slices of 64 MiB'

# Two bad values are two lines.
run SLATE_ARENAS=none SLATE_SWITCH=none
[ "$(wc -l < "$work/errors")" = 2 ] || wrong "two bad values are not two lines"

# Text for people, JSON for programs.
run SLATE_STATS=1
[ "$(grep -c '^slate: ' "$work/errors")" -gt 10 ] || wrong "SLATE_STATS=1 prints too little"
grep -qvE '^slate: ' "$work/errors" && wrong "SLATE_STATS=1 prints lines without slate:"
run SLATE_STATS=json
if command -v python3 > /dev/null; then
    python3 -c 'import json, sys; stats = json.load(sys.stdin); assert stats["committed"] > 0 and stats["classes"]' \
        < "$work/errors" 2> "$work/python" || wrong "SLATE_STATS=json prints no JSON: $(tail -n 1 "$work/python")"
else
    { grep -q '"committed": [1-9]' "$work/errors" && grep -q '"classes": \[' "$work/errors"; } ||
        wrong "SLATE_STATS=json prints no JSON"
fi

# Nothing of this is for a program that does not use slate's tunables by that name.
run SLATE_UNKNOWN=1 SLATE_POLICYX=never
[ -s "$work/errors" ] && wrong "an unknown variable was reported"

# The table says all: every tunable that it lists was tried above.
if [ -x "$slate" ]; then
    for name in $($slate --help-tunables | sed -n 's/^\(SLATE_[A-Z]*\) .*/\1/p'); do
        listed=1
        # Those for other programs of slate are not this test's.
        case " $seen SLATE_STATS " in
        *" $name "*) ;;
        *) wrong "slate --help-tunables lists $name, which is not tried here" ;;
        esac
    done
    [ "${listed:-0}" = 1 ] || wrong "slate --help-tunables lists nothing"
fi

# A set-user-id program ignores the environment; tried where that can be set up.
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
    copy=$work/program
    chmod 755 "$work"
    if cp "$program" "$copy" && chown 65534 "$copy" && chmod 4755 "$copy" &&
        SLATE_ARENAS=none setpriv --reuid 65533 --clear-groups "$copy" --short > "$work/output" 2> "$work/errors"; then
        if grep -q nosuid <(findmnt -no OPTIONS -T "$work" 2> /dev/null); then
            echo "set-user-id: not tried, $work is mounted nosuid"
        else
            [ -s "$work/errors" ] && wrong "a set-user-id program read SLATE_ARENAS"
        fi
    else
        echo "set-user-id: not tried, the program does not run so here"
    fi
else
    echo "set-user-id: not tried, that takes root"
fi
echo "$tried settings tried"
exit $status
