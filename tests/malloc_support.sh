# shellcheck shell=bash
# What the tests of libslate-malloc share: where it is, policies, running programs on it. To be
# sourced by a script that has set `name`.
# SPDX-License-Identifier: MIT
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=cc}" "${CXX:=c++}" "${SANITIZER:=}"
libslate=$top_builddir/lib/.libs/libslate-malloc.so
archive=$top_builddir/lib/.libs/libslate-malloc.a
[ -f "$archive" ] || archive=$top_builddir/lib/libslate-malloc.a
# Every policy where the library checks itself, elsewhere those that are some library's default.
policies="switch shared"
[ -n "${DEBUG:-}" ] && policies="never always switch shared"
# shellcheck disable=SC2154
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}" LD_PRELOAD GLIBC_TUNABLES
failures=0
done_tests=0

skip() {
    echo "$name: skipped, $*"
    exit 77
}

if [ -n "$SANITIZER" ]; then
    skip "a sanitizer has a malloc of its own"
fi
[ -f "$archive" ] || {
    echo "$name: $archive is missing: run make first"
    exit 1
}

need_shared() {
    [ -f "$libslate" ] || skip "no shared library in this build"
}

fail() {
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
}

# expect STATUS WHAT COMMAND...: runs it with its output in $work/out and $work/errors; that exit
# code, and nothing of slate's on standard error.
expect() {
    local wanted=$1 what=$2 status=0
    shift 2
    done_tests=$((done_tests + 1))
    "$@" > "$work/out" 2> "$work/errors" < /dev/null || status=$?
    if [ $status = 77 ] && [ "$wanted" = 0 ]; then
        echo "$what: skipped: $(head -n 1 "$work/out")"
        return 0
    fi
    if [ $status != "$wanted" ]; then
        fail "$what: exit $status, not $wanted: $(tail -n 5 "$work/errors" "$work/out")"
        return 1
    fi
    if grep -q '^slate: ' "$work/errors"; then
        fail "$what: $(grep -m 1 '^slate: ' "$work/errors")"
        return 1
    fi
}

# on POLICY COMMAND...: with libslate-malloc preloaded.
on() {
    local policy=$1
    shift
    env SLATE_POLICY="$policy" LD_PRELOAD="$libslate${more_preloads:+ $more_preloads}" "$@"
}

# compile OUTPUT ARGUMENT...: into $work.
compile() {
    local output=$1
    shift
    # shellcheck disable=SC2086
    $CC -O2 "$@" -o "$work/$output" > "$work/log" 2>&1 || {
        fail "$output does not compile: $(head -n 5 "$work/log")"
        return 1
    }
}

# The closing line.
finish() {
    [ $failures = 0 ] && echo "$name: $done_tests runs as they should be"
    [ $failures = 0 ]
    exit
}
