#!/usr/bin/env bash
# Counts the instructions of the inline fast paths, from entry to ret, in what gcc -O2 makes of
# tests/golden/fastpath.c, and compares them with the limits and, for the compiler they were taken
# with, with the golden counts. `golden.sh --update` writes the golden file anew.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${CC:=gcc}" "${OBJDUMP:=objdump}"
golden=$top_srcdir/tests/golden/gcc-12-x86_64.txt
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

skip() {
    echo "golden: skipped, $*"
    exit 77
}

# paths FUNCTION: reads `objdump -dr` and prints, shortest first, how many instructions before ret
# each way through the function takes that neither calls nor jumps out of it.
paths() {
    awk -v name="$1" '
        $2 == "<" name ">:" { inside = 1; next }
        /^$/ { inside = 0 }
        !inside { next }
        $2 ~ /^R_/ { outside[count] = 1; next }
        {
            count++
            address = $1
            sub(/:$/, "", address)
            at[address] = count
            operation[count] = $2
            target[count] = $3
            if (($2 ~ /^j/ || $2 ~ /^call/) && $0 !~ ("<" name "[+>]"))
                outside[count] = 1
        }
        function walk(place, length_so_far) {
            if (place > count || length_so_far > count)
                return
            if (operation[place] ~ /^ret/ || operation[place] == "repz") {
                print length_so_far
                return
            }
            if (operation[place] ~ /^call/)
                return
            if (operation[place] ~ /^j/ && !outside[place] && (target[place] in at))
                walk(at[target[place]], length_so_far + 1)
            if (operation[place] !~ /^jmp/)
                walk(place + 1, length_so_far + 1)
        }
        END { if (count) walk(1, 0) }' | sort -n
}

# count FUNCTION WAY WHICH LIMIT: WHICH is the number of the path, 1 for the shortest, $ for the
# longest.
count() {
    local instructions
    instructions=$(paths "$1" < "$work/listing" | sed -n "$3p")
    echo "$1 $2 ${instructions:-none}" >> "$work/counts"
    if [ -z "$instructions" ] || [ "$instructions" -gt "$4" ]; then
        echo "golden: $1, $2: ${instructions:-no path found, so no} instructions before ret, at most $4 are allowed"
        status=1
    fi
}

# The walker itself, on a listing whose ways are known: 2 and 5 instructions, one call, one jump out
# of the function.
self_test() {
    local found
    found=$(paths sample << 'EOF' | tr '\n' ' '
0000000000000000 <sample>:
   0:	test   %rdi,%rdi
   3:	je     6 <sample+0x6>
   5:	ret
   6:	test   %rsi,%rsi
   9:	jne    10 <sample+0x10>
   b:	js     f <sample+0xf>
			d: R_X86_64_PC32	slow
   f:	ret
  10:	call   15 <sample+0x15>
			11: R_X86_64_PLT32	slow
  15:	ret

0000000000000020 <other>:
  20:	ret
EOF
    )
    [ "$found" = "2 5 " ] || {
        echo "golden: the walker found \"$found\" in its own sample"
        exit 1
    }
}

self_test
macros=$($CC -dM -E - < /dev/null 2>/dev/null) || skip "$CC does not run"
grep -q '__x86_64__ 1' <<< "$macros" || skip "the counts are those of x86-64"
grep -q '__clang__' <<< "$macros" && skip "the counts are those of gcc"
major=$(sed -n 's/^#define __GNUC__ //p' <<< "$macros")

$CC -std=gnu11 -O2 -fno-pie -fcf-protection=none -DSLATE_STATIC -I"$top_srcdir/include" \
    -c "$top_srcdir/tests/golden/fastpath.c" -o "$work/fastpath.o" || exit 1
$OBJDUMP -dr --no-show-raw-insn "$work/fastpath.o" > "$work/listing" || exit 1

status=0
count alloc48 "from the stack" 1 9
count alloc48 "from the word" '$' 12
count free_block "of an own block" '$' 22
count usable_size "of an own block" '$' 19
count region_alloc48 "in the chunk" 1 6
count region_new "in the chunk" 1 6
count region_alloc "in the chunk" 1 14
cat "$work/counts"

if [ "${1:-}" = --update ]; then
    [ "$major" = 12 ] || skip "the golden file is gcc 12's"
    cp "$work/counts" "$golden"
elif [ "$major" = 12 ]; then
    diff -u "$golden" "$work/counts" || {
        echo "golden: the counts changed; if that is meant, run tests/golden.sh --update"
        status=1
    }
else
    echo "golden: gcc $major: compared with the limits alone"
fi
exit $status
