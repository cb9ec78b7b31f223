#!/usr/bin/env bash
# Builds slate in another way, in a directory of its own below the build directory, and runs the
# test programs there. Called by make check-NAME; NAME is debug, asan, tsan, valgrind, clang or
# warnings.
# Exit 77: skipped, with the reason.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C
name=$1
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${MAKE:=make}"
unset CFLAGS CPPFLAGS LDFLAGS

skip() {
    echo "check-$name: skipped, $*"
    exit 77
}

need() {
    command -v "$1" >/dev/null || skip "$1 is missing (Debian: $2)"
}

# build DIRECTORY TARGET... -- CONFIGURE-ARGUMENT...: configures DIRECTORY if that was not done with
# these arguments, and makes the targets.
build() {
    local directory=$1 source=$top_srcdir
    shift
    local targets=()
    while [ "$1" != -- ]; do
        targets+=("$1")
        shift
    done
    shift
    mkdir -p "$directory"
    if [ -f "$top_srcdir/config.status" ]; then
        # A tree that is configured itself cannot be built from elsewhere as well: build a copy of
        # what is distributed.
        source=$PWD/$directory/source
        "$MAKE" -s distdir distdir="$directory/source"
        chmod -R u+w "$source"
    fi
    (
        cd "$directory"
        if [ ! -f config.status ] || [ "$source/configure" -nt config.status ] ||
            [ "$*" != "$(cat configured 2>/dev/null)" ]; then
            "$source/configure" --quiet "$@"
            echo "$*" > configured
        fi
        "$MAKE" -s "${targets[@]}"
    )
}

# An address space laid out at random can overlap what the sanitizer wants for itself; setarch -R
# turns that off.
tsan_launcher() {
    local work status=0
    work=$(mktemp -d)
    echo 'int main(void) { return 0; }' > "$work/empty.c"
    "${CC:-gcc}" -fsanitize=thread "$work/empty.c" -o "$work/empty" 2>/dev/null || status=1
    if [ $status = 1 ]; then
        launcher=no
    elif (for _ in 1 2 3 4 5 6 7 8; do "$work/empty" || exit 1; done) 2>/dev/null; then
        launcher=
    elif setarch -R "$work/empty" 2>/dev/null; then
        launcher="setarch -R"
    else
        launcher=no
    fi
    rm -rf "$work"
}

case $name in
debug)
    build check-debug check-internals -- --enable-debug --disable-programs
    ;;
asan)
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
    export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
    build check-asan check-programs -- --enable-sanitizer=address --disable-shared CFLAGS="-O1 -g"
    ;;
tsan)
    tsan_launcher
    [ "$launcher" != no ] || skip "programs built with -fsanitize=thread do not run here"
    export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
    build check-tsan check-programs LOG_COMPILER="$launcher" -- \
        --enable-sanitizer=thread --disable-shared CFLAGS="-O1 -g"
    ;;
valgrind)
    need valgrind valgrind
    # Check runs each test in a child; Valgrind follows it, and one process is enough here.
    export CK_FORK=no
    build check-valgrind check-under-valgrind \
        LOG_COMPILER="valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite" -- \
        --disable-shared CFLAGS="-O1 -g"
    ;;
clang)
    need clang clang
    build check-clang check -- CC=clang CXX=clang++
    ;;
warnings)
    build check-warnings-gcc check TESTS= -- --enable-werror CC=gcc
    if command -v clang >/dev/null; then
        build check-warnings-clang check TESTS= -- --enable-werror CC=clang
    else
        echo "check-warnings: gcc alone, clang is missing (Debian: clang)"
    fi
    ;;
*)
    echo "variant.sh: unknown build \"$name\"; known are debug, asan, tsan, valgrind, clang and warnings" >&2
    exit 2
    ;;
esac
