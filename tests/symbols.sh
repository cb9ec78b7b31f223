#!/usr/bin/env bash
# Checks that the headers, lib/slate.map and libslate.so agree on what slate exports, lib/malloc.map
# and libslate-malloc.so too; and that each takes one pointer of a thread's static storage.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}" "${NM:=nm}"
library=$top_builddir/lib/.libs/libslate.so
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# declared FILE...: what the headers declare with SLATE_API, a name a line.
declared() {
    sed -e 's,//.*,,' "$@" | tr '\n' ' ' | sed -e 's,/\*,\n&,g' -e 's,\*/,&\n,g' | sed -e '/^\/\*/d' |
        tr '\n' ' ' | tr ';{}' '\n\n\n' | sed -n 's/.*SLATE_API \(.*\)/\1/p' |
        grep -v '__attribute__((visibility' |
        sed -n -e 's/^[^(]*\b\(slate_[a-z0-9_]*\) *(.*/\1/p;t' \
            -e 's/.*[ *]\(slate_[a-z0-9_]*\)\( SLATE_TLS_\)\{0,1\} *$/\1/p' | sort -u
}

# mapped FILE: what the map file lists as global.
mapped() {
    sed -e 's,/\*.*\*/,,' "$1" | sed -n '/global:/,/local:/p' | sed -n 's/^ *\([a-zA-Z0-9_*?]*\);.*/\1/p' | sort -u
}

# exported FILE: what the dynamic symbol table defines, without the version nodes.
exported() {
    $NM -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

# same NAME NAME: fails unless the two lists are equal and not empty.
same() {
    if [ ! -s "$work/$1" ]; then
        echo "symbols: nothing found in $1"
        return 1
    fi
    local difference
    difference=$(comm -3 "$work/$1" "$work/$2")
    [ -z "$difference" ] && return 0
    echo "symbols: only in $1 (left) or only in $2 (right):"
    echo "$difference"
    return 1
}

# A wrong header must not pass for a right one.
cat > "$work/wrong.h" <<'EOF'
/* SLATE_API void slate_in_a_comment(void); */
SLATE_API void *slate_one(size_t size)
    __attribute__((malloc));
SLATE_API extern __thread struct slate_x_ *slate_two_ SLATE_TLS_;
void slate_three(void);
EOF
declared "$work/wrong.h" > "$work/self-test"
printf '%s\n' slate_one slate_two_ > "$work/expected"
same self-test expected || exit 1

declared "$top_srcdir"/include/slate.h "$top_srcdir"/include/slate/*.h > "$work/headers"
mapped "$top_srcdir/lib/slate.map" > "$work/slate.map"
status=0
same headers slate.map || status=1
if [ -f "$library" ]; then
    exported "$library" > "$work/libslate.so"
    same slate.map libslate.so || status=1
    # All of libc's allocation functions: a program that got one of them from libc and another from
    # slate would break.
    malloc_library=${library%libslate.so}libslate-malloc.so
    if [ -f "$malloc_library" ]; then
        mapped "$top_srcdir/lib/malloc.map" > "$work/malloc.map"
        exported "$malloc_library" > "$work/libslate-malloc.so"
        same malloc.map libslate-malloc.so || status=1
        libc=$(ldd "$malloc_library" | sed -n 's/.*libc\.so\.6 => \([^ ]*\).*/\1/p')
        # Not malloc's, or for libc's own parts alone: GLIBC_PRIVATE.
        $NM -D --defined-only "${libc:-/dev/null}" |
            awk '$3 !~ /GLIBC_PRIVATE/ && $2 ~ /[TWi]/ { sub(/@.*/, "", $3); print $3 }' |
            grep -E '^(__libc_|__)?(posix_|aligned_|re|c|v|pv|m)?(alloc|memalign|mallinfo2?|free|allocarray)$|^mallo|^c?free$|^malloc_(trim|usable_size|info|stats)$' |
            sort -u > "$work/libc"
        [ "$(wc -l < "$work/libc")" -ge 20 ] || {
            echo "symbols: too few allocation functions found in ${libc:-libc}"
            status=1
        }
        missing=$(comm -23 "$work/libc" "$work/libslate-malloc.so")
        [ -z "$missing" ] || {
            echo "symbols: libc has these, libslate-malloc.so has not:" $missing
            status=1
        }
        LC_ALL=C readelf -lW "$malloc_library" | awk '$1 == "TLS" { size = $6 } END { exit size !~ /^0x0*8$/ }' || {
            echo "symbols: libslate-malloc.so does not take 8 bytes of static TLS"
            status=1
        }
    fi
elif [ $status = 0 ]; then
    echo "symbols: no shared library in this build; headers and map agree"
    exit 77
fi
[ $status = 0 ] && echo "symbols: $(wc -l < "$work/headers") names agree"
exit $status
