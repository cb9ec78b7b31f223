#!/usr/bin/env bash
# Checks that the library's own data stays small: 64 KiB zero-filled could not hold a huge page, nor
# slow a program's start.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_builddir:=.}" "${SIZE:=size}" "${SANITIZER:=}"
library=$top_builddir/lib/.libs/libslate.so
limit=65536

if [ -n "$SANITIZER" ]; then
    echo "data_size: skipped, sanitizers add data of their own"
    exit 77
fi
if [ ! -f "$library" ]; then
    echo "data_size: skipped, no shared library in this build"
    exit 77
fi
bytes=$($SIZE "$library" | awk 'NR == 2 { print $2 + $3 }')
case $bytes in
'' | *[!0-9]*)
    echo "data_size: cannot read the sizes of $library"
    exit 1
    ;;
esac
echo "data_size: .data and .bss take $bytes bytes of at most $((limit - 1))"
[ "$bytes" -gt 0 ] && [ "$bytes" -lt $limit ]
