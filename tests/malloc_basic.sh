#!/usr/bin/env bash
# Runs the tests of libc's allocation functions on libslate-malloc, linked as a shared and as a
# static library, with every policy; and builds programs against it in the ways that there are:
# static, position-independent or not, link-time optimised, fortified.
# SPDX-License-Identifier: MIT
set -u
name=malloc_basic
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"

for policy in $policies; do
    expect 0 "malloc_unit_linked, policy $policy" env SLATE_POLICY="$policy" "$top_builddir/tests/malloc_unit_linked"
done
expect 0 "malloc_unit" "$top_builddir/tests/malloc_unit"

# ---- what a program may do with what malloc_usable_size tells it, checked by _FORTIFY_SOURCE

cat > "$work/usable.c" << 'EOT'
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* As programs do it: the compiler forgets what was asked for, and learns what may be used. */
__attribute__((noinline, alloc_size(2))) static void *grown(void *block, size_t size)
{
    (void)size;
    __asm__("" : "+r"(block));
    return block;
}

int main(void)
{
    for (volatile size_t size = 0; size < 3000; size++) {
        char *block = malloc(size), *behind = malloc(size);
        size_t usable = malloc_usable_size(block);
        block = grown(block, usable);
        memset(behind, 1, malloc_usable_size(behind) < size ? 1 : size);
        memset(block, 2, usable);
        for (size_t i = 0; i < size; i++)
            if (behind[i] != 1)
                return 1;
        if (usable < size || (usable != 0 && block[usable - 1] != 2))
            return 2;
        free(block);
        free(behind);
    }
    return 0;
}
EOT
# ---- a program that counts on every function being slate's

cat > "$work/whole.c" << 'EOT'
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept;

static void *thread(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        char *text = strdup("some text"), *more = NULL;
        size_t room = 0;
        (void)argument;
        kept = text;
        if (asprintf(&more, "%s %d", text, i) < 0)
            return (void *)1;
        free(text);
        free(more);
        (void)room;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    void *result;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL) != 0)
            return 1;
    for (int i = 0; i < 4; i++)
        if (pthread_join(threads[i], &result) != 0 || result != NULL)
            return 2;
    /* A calloc that called itself would not come back from here. */
    for (size_t size = 1; size < 100000; size = size * 2 + 1) {
        unsigned char *block = malloc(size);
        memset(block, 0xff, size);
        free(block);
        block = calloc(1, size);
        for (size_t i = 0; i < size; i++)
            if (block[i] != 0)
                return 3;
        kept = block;
        free(block);
    }
    pid_t child = fork();
    if (child == 0) {
        kept = malloc(100000);
        _exit(kept == NULL);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 4;
    /* The blocks are slate's: glibc's malloc(100) has 104 bytes. */
    kept = malloc(100);
    return malloc_usable_size(kept) == 112 ? 0 : 5;
}
EOT

for level in "" -D_FORTIFY_SOURCE=2 -D_FORTIFY_SOURCE=3; do
    compile usable "$work/usable.c" $level "$archive" -pthread &&
        expect 0 "usable sizes ${level:-without _FORTIFY_SOURCE}" "$work/usable"
done

# build NAME ARGUMENT...: the whole program in one more way.
build() {
    local what=$1
    shift
    compile whole -D_GNU_SOURCE "$work/whole.c" "$@" -pthread && expect 0 "program $what" "$work/whole"
}

build "linked with the archive" "$archive"
build "without position independence" -fno-pie -no-pie "$archive"
build "exporting its symbols" -rdynamic "$archive"
if compile static -static -x c - -pthread <<< 'int main(void) { return 0; }' 2> /dev/null; then
    build "all static" -static "$archive"
    build "all static, position-independent" -static-pie "$archive"
else
    failures=$((failures - 1))
    echo "all static: skipped, libc.a is missing (Debian: libc6-dev)"
fi
if [ -f "$libslate" ]; then
    build "linked with the shared library" -L"${libslate%/*}" -Wl,-rpath,"${libslate%/*}" -lslate-malloc
    compile whole -D_GNU_SOURCE "$work/whole.c" -pthread &&
        for policy in $policies; do
            expect 0 "program on policy $policy" on "$policy" "$work/whole"
        done
fi

# ---- slate's sources and the program optimised as one: the compiler sees malloc, memset and calloc
# together there, and must not make one of the others

sources=$(sed -n '/^library_sources = /,/[^\\]$/p; /^malloc_function_sources = /,/[^\\]$/p; /^malloc_sources = /,/[^\\]$/p' \
    "$top_srcdir/Makefile.am" | grep -o 'lib/[a-z_]*\.c' | sort -u)
[ "$(wc -w <<< "$sources")" -ge 15 ] || fail "sources not found in Makefile.am: $sources"
flags="-std=gnu11 -fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc -fno-builtin-calloc
    -fno-builtin-realloc -fno-builtin-free -fexceptions -I$top_srcdir/include -iquote $top_srcdir/lib"
for compiler in "$CC" clang; do
    command -v "${compiler%% *}" > /dev/null || continue
    for optimise in -O2 -O3; do
        # shellcheck disable=SC2086
        (cd "$top_srcdir" && $compiler $optimise -flto $flags -D_GNU_SOURCE $sources "$work/whole.c" -pthread \
            -o "$work/whole-lto") > "$work/log" 2>&1 || {
            # A compiler without the linker's plugin cannot.
            if grep -qiE 'plugin|LLVMgold|lto' "$work/log" && [ "$compiler" != "$CC" ]; then
                echo "link-time optimisation by $compiler: skipped, it cannot link"
                continue
            fi
            fail "link-time optimisation by $compiler $optimise: $(head -n 5 "$work/log")"
            continue
        }
        expect 0 "link-time optimised by $compiler $optimise" "$work/whole-lto"
    done
done
# The object that has calloc calls no calloc.
if ${NM:-nm} -A "$archive" 2> /dev/null | awk '$NF ~ /^(malloc|calloc|realloc|free)$/ && $(NF - 1) == "U" { print; found = 1 } END { exit !found }'; then
    fail "slate's own code calls libc's allocation functions"
fi

# ---- malloc is as short as slate_alloc, free as slate_free: no call, nothing by way of the linker's
# tables

# code LIBRARY FUNCTION: its instructions, without addresses.
code() {
    local at
    at=$(${NM:-nm} -D "$1" | sed -n "s/^0*\([0-9a-f]*\) [TW] $2\(@.*\)\{0,1\}\$/\1/p")
    ${OBJDUMP:-objdump} -d --no-show-raw-insn --start-address="0x$at" "$1" |
        awk '/^[0-9a-f]+ <.*>:$/ { if (++functions > 1) exit; next } functions && NF > 1 { print $2, $3 ~ /^</ ? "" : $NF }' |
        grep -v '^nop\|^xchg\|^data16\|^cs ' | sed 's/ .*//'
}
if [ -f "$libslate" ] && [ "$(uname -m)" = x86_64 ] && [ -z "${DEBUG:-}" ]; then
    own=${libslate%-malloc.so}.so
    for pair in malloc:slate_alloc free:slate_free _ZdlPv:slate_free; do
        done_tests=$((done_tests + 1))
        code "$libslate" "${pair%:*}" > "$work/code"
        code "$own" "${pair#*:}" > "$work/code-of-slate"
        lines=$(wc -l < "$work/code")
        { [ "$lines" -ge 15 ] && [ "$lines" -le "$(wc -l < "$work/code-of-slate")" ]; } ||
            fail "${pair%:*} has $lines instructions, ${pair#*:} $(wc -l < "$work/code-of-slate")"
    done
    for function in malloc free _Znwm _ZdlPv malloc_usable_size; do
        done_tests=$((done_tests + 1))
        code "$libslate" $function > "$work/code"
        { [ -s "$work/code" ] && ! grep -qE '^(call|push|leave)' "$work/code"; } ||
            fail "$function calls something, or has a stack frame"
    done
fi
finish
