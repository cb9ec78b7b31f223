#!/usr/bin/env bash
# Compiles programs against the header as C99, C11, C++11 and C++17 with all warnings as errors,
# with and without its inline functions, and runs them.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$(pwd)}"
: "${CC:=gcc}" "${CXX:=}" "${SANITIZER:=}"
library=$top_builddir/lib/.libs/libslate.a
[ -f "$library" ] || library=$top_builddir/lib/libslate.a
if [ ! -f "$library" ]; then
    echo "cxx.sh: $library is missing: run make first" >&2
    exit 1
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
status=0
count=0
warnings="-Wall -Wextra -Wpedantic -Wcast-align -Wconversion -Werror"

# try SOURCE COMPILER FLAG...: compiles, links and runs.
try() {
    local source=$1 compiler=$2
    shift 2
    count=$((count + 1))
    # shellcheck disable=SC2086
    if ! $compiler "$@" $warnings -O2 $SANITIZER -I"$top_srcdir/include" "$top_srcdir/tests/$source" \
        "$library" -pthread -o "$work/program" > "$work/log" 2>&1; then
        echo "FAILED: $source does not compile with $compiler $*"
        head -n 20 "$work/log"
        status=1
    elif ! "$work/program" > "$work/log" 2>&1; then
        echo "FAILED: $source compiled with $compiler $*"
        cat "$work/log"
        status=1
    fi
}

for standard in c99 c11 gnu17; do
    for source in ex_hello.c ex_threads.c ex_tune.c; do
        try $source "$CC" -std=$standard
    done
done
try ex_threads.c "$CC" -std=c11 -DSLATE_NO_INLINE
try ex_threads.c "$CC" -std=c11 -DSLATE_STATIC

# configure's C++ compiler, and whichever others there are.
compilers=()
for compiler in "$CXX" g++ clang++; do
    [ -n "$compiler" ] && command -v ${compiler%% *} > /dev/null || continue
    # A compiler may be there without its library or its sanitizer.
    echo '#include <string>
int main() { return std::string().size() != 0; }' > "$work/empty.cc"
    # shellcheck disable=SC2086
    $compiler $SANITIZER "$work/empty.cc" -o "$work/empty" > /dev/null 2>&1 || continue
    case " ${compilers[*]-} " in *" $compiler "*) continue ;; esac
    compilers+=("$compiler")
done
for compiler in "${compilers[@]}"; do
    # A static library of one compiler's sanitizer does not go with another's.
    [ -n "$SANITIZER" ] && [ "$compiler" != "$CXX" ] && continue
    for standard in c++11 c++17; do
        try cxx.cc "$compiler" -std=$standard
        try cxx.cc "$compiler" -std=$standard -DSLATE_NO_INLINE
    done
    try cxx.cc "$compiler" -std=c++17 -DSLATE_STATIC
done
[ ${#compilers[@]} = 0 ] && echo "C++: not tried, there is no compiler (Debian: g++)"
echo "$count programs compiled"
exit $status
