#!/usr/bin/env bash
# Runs a small program under limits of its address space, with each policy: it works, or says in one
# line why it cannot and every allocation fails cleanly.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_builddir:=$(pwd)}" "${SANITIZER:=}"
program=$top_builddir/tests/ladder_program
if [ -n "$SANITIZER" ]; then
    echo "skipped: sanitizers take terabytes of address space for themselves"
    exit 77
fi
if [ ! -x "$program" ]; then
    echo "ladder.sh: $program is missing: run make check" >&2
    exit 1
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
status=0
wrong() {
    echo "FAILED: $*"
    sed 's/^/    /' "$work/errors"
    status=1
}

# Limits in MiB; 0 is none.
for limit in 64 128 256 512 1024 4096 16384 65536 0; do
    for policy in never always switch shared; do
        what="policy $policy under $limit MiB"
        [ $limit = 0 ] && what="policy $policy without a limit"
        (
            [ $limit = 0 ] || ulimit -v $((limit * 1024)) || exit 99
            SLATE_POLICY=$policy exec "$program"
        ) > "$work/output" 2> "$work/errors"
        code=$?
        reserved=$(cat "$work/output")
        lines=$(wc -l < "$work/errors")
        case $code in
        0)
            [ "$lines" = 0 ] || wrong "$what: it worked, but printed $lines lines"
            # Room for blocks is what it is all about: at least a quarter of the limit.
            if [ $limit != 0 ]; then
                { [ "$reserved" -ge $((limit / 4)) ] && [ "$reserved" -le $((limit * 3 / 4)) ]; } ||
                    wrong "$what: $reserved MiB reserved"
            fi
            ;;
        3)
            { [ "$lines" = 1 ] && grep -q '^slate: ' "$work/errors"; } ||
                wrong "$what: no memory, reported in $lines lines"
            [ $limit -gt 128 ] || [ $limit = 0 ] && wrong "$what: no memory, where there is enough"
            ;;
        *) wrong "$what: exit $code" ;;
        esac
        echo "$what: exit $code, reserved $reserved MiB"
    done
done

# Too little for anything: one line, and clean failures.
(
    ulimit -v 20480 || exit 99
    exec "$program"
) > "$work/output" 2> "$work/errors"
code=$?
if [ $code -ge 126 ]; then
    echo "20 MiB: the program itself does not start there"
elif [ $code = 3 ]; then
    { [ "$(wc -l < "$work/errors")" = 1 ] && grep -q '^slate: .*16 MiB' "$work/errors"; } ||
        wrong "20 MiB: not one line that says why"
else
    wrong "20 MiB: exit $code"
fi
exit $status
