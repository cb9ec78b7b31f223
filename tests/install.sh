#!/usr/bin/env bash
# Installs slate into a folder and builds C99 and C++ programs against it with pkg-config, shared
# and static.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_builddir:=$PWD}" "${CC:=gcc}" "${CXX:=}" "${MAKE:=make}" "${PKG_CONFIG:=pkg-config}" "${SANITIZER:=}"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

fail() {
    echo "install: $*"
    exit 1
}

if [ -n "$SANITIZER" ]; then
    echo "install: skipped, not for builds with a sanitizer"
    exit 77
fi
# The make that runs this test must not hand its job server on.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u DESTDIR "$MAKE" -C "$top_builddir" -s install DESTDIR="$work/root" \
    > "$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "make install failed"; }
metadata=$(find "$work/root" -name slate.pc)
[ -n "$metadata" ] || fail "slate.pc was not installed"
export PKG_CONFIG_PATH=${metadata%/*} PKG_CONFIG_SYSROOT_DIR=$work/root
headers=$("$PKG_CONFIG" --variable=includedir slate)
libraries=$("$PKG_CONFIG" --variable=libdir slate)
case $headers in "$work"*) ;; *) headers=$work/root$headers ;; esac
case $libraries in "$work"*) ;; *) libraries=$work/root$libraries ;; esac
for header in slate.h slate/class.h slate/inline.h slate/track.h; do
    [ -f "$headers/$header" ] || fail "$header was not installed"
done

cat > "$work/example.c" <<'EOF'
#include <slate.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char *text = (char *)slate_alloc(6);
    if (text == NULL)
        return 1;
    memcpy(text, "slate", 6);
    text = (char *)slate_realloc(text, 4000);
    if (text == NULL || strcmp(text, "slate") != 0)
        return 2;
    if (slate_usable_size(text) < 4000 || strcmp(slate_version(), SLATE_VERSION) != 0)
        return 3;
    slate_free(text);
    unsigned char *zero = (unsigned char *)slate_zalloc(100);
    if (zero == NULL || zero[0] != 0 || zero[99] != 0)
        return 4;
    slate_free_sized(zero, 100);
    puts("ok");
    return 0;
}
EOF
cp "$work/example.c" "$work/example.cc"
sed 's,#include <slate.h>,#define SLATE_NO_INLINE\n&,' "$work/example.c" > "$work/called.c"

# try NAME COMPILER STANDARD SOURCE [--static]: builds SOURCE and runs it.
try() {
    local name=$1 compiler=$2 standard=$3 source=$4 static=${5:-}
    local flags libs
    flags=$("$PKG_CONFIG" $static --cflags slate) || fail "$name: pkg-config knows no flags"
    libs=$("$PKG_CONFIG" $static --libs slate) || fail "$name: pkg-config knows no libraries"
    # No -lslate where the archive is meant: the linker prefers the shared one.
    [ -z "$static" ] || libs=${libs/-lslate/$libraries/libslate.a}
    # shellcheck disable=SC2086
    $compiler -std="$standard" -O2 -Wall -Wextra -Wpedantic -Werror $flags "$work/$source" -o "$work/program" $libs ||
        fail "$name: does not compile"
    if [ -z "$static" ]; then
        readelf -d "$work/program" 2>/dev/null | grep -q 'NEEDED.*libslate' || fail "$name: not linked with libslate.so"
    elif readelf -d "$work/program" 2>/dev/null | grep -q 'NEEDED.*libslate'; then
        fail "$name: linked with libslate.so"
    fi
    [ "$(LD_LIBRARY_PATH="$libraries" "$work/program")" = ok ] || fail "$name: the program fails"
    count=$((count + 1))
}

cat > "$work/whole.c" <<'EOF'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *volatile block = malloc(100);
    puts(malloc_usable_size(block) == 112 ? "ok" : "not slate's");
    free(block);
    return 0;
}
EOF

# whole NAME ARGUMENT...: builds a program that has slate's malloc without naming slate.
whole() {
    local name=$1
    shift
    $CC -O2 -Wall "$work/whole.c" -o "$work/program" "$@" || fail "$name: does not compile"
    [ "$(LD_LIBRARY_PATH="$libraries" "$work/program")" = ok ] || fail "$name: the program's malloc is not slate's"
    count=$((count + 1))
}

count=0
kinds=(--static)
[ -f "$libraries/libslate.so" ] && kinds+=("")
for kind in "${kinds[@]}"; do
    try "C99 ${kind:-shared}" "$CC" c99 example.c $kind
    try "C11 without inlines ${kind:-shared}" "$CC" c11 called.c $kind
    if [ -n "$CXX" ]; then
        try "C++ ${kind:-shared}" "$CXX" c++11 example.cc $kind
        try "newer C++ ${kind:-shared}" "$CXX" c++20 example.cc $kind
    fi
done
whole "libslate-malloc.a" "$libraries/libslate-malloc.a" -pthread
if [ -f "$libraries/libslate-malloc.so" ]; then
    # shellcheck disable=SC2046
    whole "libslate-malloc.so" -Wl,--no-as-needed $("$PKG_CONFIG" --libs slate-malloc)
    $CC -O2 "$work/whole.c" -o "$work/program" || fail "whole.c does not compile"
    [ "$(LD_PRELOAD="$libraries/libslate-malloc.so" "$work/program")" = ok ] ||
        fail "preloaded: the program's malloc is not slate's"
fi
[ -n "$(find "$work/root" -name 'libslate-malloc.3*')" ] || fail "libslate-malloc(3) was not installed"
echo "install: $count programs built and run"
