#!/usr/bin/env bash
# Checks the rules that a compiler does not: layers of the library, what it may call, sizes of
# files, notices, paths. Each rule is first tried on an example that breaks it, so that none passes
# because it looks at nothing.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=gcc}" "${NM:=nm}" "${SANITIZER:=}"
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# ---- rules on objects: each takes a static library -----------------------------------------------

# symbols ARCHIVE: "FILE KIND NAME" for each symbol, FILE without its suffix and the prefix that
# automake gives.
symbols() {
    $NM -A "$1" 2>/dev/null | sed -n 's/^[^:]*:\([^:]*\)\.o:[0-9a-f ]* \([A-Za-z]\) \(.*\)$/\1 \2 \3/p' |
        sed 's/^[a-z_]*_la-//'
}

# A file uses names of its own level or lower ones.
rule_levels() {
    symbols "$1" | awk '
        BEGIN {
            levels = "os report lock/tunables reserve/numa policy/pool arena/slice large/stats debug/api/region buffer/scratch/malloc malloc_cxx malloc_info malloc_other"
            for (i = split(levels, row, "/"); i > 0; i--)
                for (j = split(row[i], file, " "); j > 0; j--)
                    level[file[j]] = i - 1
        }
        !($1 in level) && !($1 in told) { print $1 ".c has no level in tests/lint.sh"; told[$1] = 1; bad = 1 }
        $2 ~ /[TDBRVWCS]/ { home[$3] = $1 }
        $2 == "U" && $3 ~ /^slate/ { uses[$1 " " $3] = 1 }
        { seen++ }
        END {
            for (use in uses) {
                split(use, part, " ")
                if (!(part[2] in home))
                    continue
                owner = home[part[2]]
                if (level[part[1]] < level[owner]) {
                    print part[1] ".c (level " level[part[1]] ") uses " part[2] " of " owner ".c (level " level[owner] ")"
                    bad = 1
                }
            }
            if (!seen) print "no symbols found"
            exit bad || !seen
        }'
}

# Only os.c asks the kernel for memory.
rule_kernel() {
    symbols "$1" | awk '
        $2 == "U" && $1 != "os" &&
        $3 ~ /^(mmap|mmap64|munmap|mprotect|madvise|process_madvise|mremap|mincore|mlock|munlock|brk|sbrk|syscall|prctl)$/ {
            print $1 ".c calls " $3; bad = 1
        }
        END { exit bad }'
}

# Only tunables.c reads the environment.
rule_environment() {
    symbols "$1" | awk '
        $2 == "U" && $1 != "tunables" && $3 ~ /^(getenv|secure_getenv|__secure_getenv|environ|__environ|__libc_stack_end)$/ {
            print $1 ".c uses " $3; bad = 1
        }
        END { exit bad }'
}

# The library takes nothing of libc but this: nothing that allocates, prints through stdio or ends
# the process. malloc_info writes to the stream that it is given; operator new looks for a C++
# library, and has no way to return when there is none.
rule_libc() {
    symbols "$1" | awk -v debug="${DEBUG-}" -v allowed="
        __errno_location memcpy memmove memset memcmp strlen strcmp strncmp strchr memchr
        open read write close mmap munmap mprotect madvise mremap mincore sysconf getrlimit prctl
        secure_getenv getauxval environ __libc_stack_end atexit pthread_atfork pthread_key_create pthread_setspecific pthread_getspecific pthread_once
        pthread_mutex_init pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock
        pthread_self sched_yield clock_gettime
        __popcountdi2 __stack_chk_fail __memcpy_chk __memset_chk __memmove_chk __read_chk _GLOBAL_OFFSET_TABLE_" '
        BEGIN {
            for (i = split(allowed, name, /[ \n]+/); i > 0; i--)
                known[name[i]] = 1
            special["malloc_info"] = " fprintf fputs fwrite "
            special["malloc_cxx"] = " abort "
            # slate_region_printf and its like
            special["region"] = special["buffer"] = " vsnprintf __vsnprintf_chk "
            # its failing checks
            if (debug) special["report"] = " abort "
        }
        $2 == "U" && $3 !~ /^slate/ && !($3 in known) && !index(special[$1], " " $3 " ") { print $1 ".c uses " $3; bad = 1 }
        END { exit bad }'
}

# ---- rules on sources: each takes a folder and reads the names of files in it --------------------

rule_length() {
    local folder=$1 bad=0 file lines
    while read -r file; do
        case $file in
        lib/*.[ch] | bench/*.[ch] | tests/*.[ch] | include/*.h | tests/*.sh) ;;
        *) continue ;;
        esac
        lines=$(wc -l < "$folder/$file")
        if [ "$lines" -gt 800 ]; then
            echo "$file has $lines lines; 800 are allowed"
            bad=1
        fi
    done
    return $bad
}

# Each source file says its licence, and what it is for, at its top.
rule_notice() {
    local folder=$1 bad=0 file
    while read -r file; do
        case $file in
        *.[ch] | *.hpp | *.cc | *.sh | *.m4 | configure.ac | Makefile.am | bootstrap | */run) ;;
        *) continue ;;
        esac
        if ! head -n 10 "$folder/$file" | grep -q 'SPDX-License-Identifier: MIT'; then
            echo "$file has no line with SPDX-License-Identifier: MIT near its top"
            bad=1
        fi
    done
    return $bad
}

# No path that exists on one machine alone. The brackets keep this file from naming one.
rule_paths() {
    local folder=$1 bad=0 file found
    while read -r file; do
        case $file in *.slt) continue ;; esac
        if found=$(grep -nE '/[w]ork/|/[f]arm/|/[r]oot/|/[h]ome/[a-z]' "$folder/$file"); then
            echo "$file names a path of one machine: ${found%%$'\n'*}"
            bad=1
        fi
    done
    return $bad
}

# The top level is fixed.
rule_top() {
    local bad=0 file
    while read -r file; do
        case ${file%%/*} in
        configure.ac | Makefile.am | lib | include | tests | bench | m4 | ChangeLog | README | COPYING | bootstrap | .*) ;;
        *)
            echo "$file: ${file%%/*} does not belong at the top level"
            bad=1
            ;;
        esac
    done
    return $bad
}

# ---- each rule must fail on a bad example and pass on a good one ---------------------------------

status=0

# expect good|bad NAME RULE...: runs the rule.
expect() {
    local wanted=$1 name=$2 output got=good
    shift 2
    output=$("$@") || got=bad
    if [ $got != "$wanted" ]; then
        echo "lint: self-test $name: $1 finds the $wanted example $got: $output"
        status=1
    fi
}

# archive NAME FILE=TEXT...: a static library of C texts.
archive() {
    local name=$1 objects=() part
    shift
    mkdir -p "$work/$name"
    for part; do
        echo "${part#*=}" > "$work/$name/${part%%=*}.c"
        $CC -O1 -c "$work/$name/${part%%=*}.c" -o "$work/$name/${part%%=*}.o" || exit 1
        objects+=("$work/$name/${part%%=*}.o")
    done
    ar rcs "$work/$name.a" "${objects[@]}" || exit 1
}

self_test() {
    archive good \
        'os=void *mmap(void); int slatei_map(void); int slatei_map(void) { return mmap() != 0; }' \
        'tunables=char *secure_getenv(const char *); int slatei_map(void); int slatei_set(void);
            int slatei_set(void) { return secure_getenv("X") != 0 && slatei_map(); }'
    archive bad \
        'os=int slatei_set(void); int slatei_map(void); int slatei_map(void) { return slatei_set(); }' \
        'tunables=void *mmap(void); int slatei_set(void); int slatei_set(void) { return mmap() != 0; }' \
        'policy=char *getenv(const char *); void *malloc(unsigned long); void *slatei_p(void);
            void *slatei_p(void) { return getenv("X") ? malloc(9) : 0; }'
    archive unknown 'other=int slatei_other(void); int slatei_other(void) { return 0; }'
    local rule
    for rule in levels kernel environment libc; do
        expect good "$rule" "rule_$rule" "$work/good.a"
        expect bad "$rule" "rule_$rule" "$work/bad.a"
    done
    expect bad "file without a level" rule_levels "$work/unknown.a"
    expect bad "missing library" rule_levels "$work/missing.a"

    mkdir -p "$work/tree/lib" "$work/tree/bin"
    printf '%s\n' '/* good.c - an example.' ' * SPDX-License-Identifier: MIT */' > "$work/tree/lib/good.c"
    { seq 1 801; echo "/""work/x"; } > "$work/tree/lib/bad.c"
    echo lib/good.c > "$work/good.list"
    printf '%s\n' lib/good.c lib/bad.c bin/x > "$work/bad.list"
    touch "$work/tree/bin/x"
    for rule in length notice paths top; do
        expect good "$rule" "rule_$rule" "$work/tree" < "$work/good.list"
        expect bad "$rule" "rule_$rule" "$work/tree" < "$work/bad.list"
    done
}

# ---- the tree itself -----------------------------------------------------------------------------

# check NAME RULE...: runs the rule on the tree.
check() {
    local name=$1 output
    shift
    if ! output=$("$@"); then
        sed "s/^/lint: $name: /" <<< "$output"
        status=1
    fi
    count=$((count + 1))
}

self_test
count=0

# built NAME: the static library of that name.
built() {
    local library=$top_builddir/lib/.libs/$1.a
    [ -f "$library" ] || library=$top_builddir/lib/$1.a
    echo "$library"
}

library=$(built libslate)
if [ -n "$SANITIZER" ]; then
    echo "lint: sanitizers add symbols of their own: the library is not looked at"
elif [ ! -f "$library" ]; then
    echo "lint: $library is missing: run make first"
    status=1
else
    for library in "$library" "$(built libslate-malloc)"; do
        check levels rule_levels "$library"
        check kernel rule_kernel "$library"
        check environment rule_environment "$library"
        check libc rule_libc "$library"
    done
fi

# A clone is judged by what git tracks; a tarball, where configure and its like lie about, by the
# folders of sources.
if (cd "$top_srcdir" && [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]); then
    (cd "$top_srcdir" && git ls-files) | while read -r file; do
        [ -f "$top_srcdir/$file" ] && echo "$file"
    done > "$work/files"
    check "top level" rule_top < "$work/files"
else
    (cd "$top_srcdir" && find lib include tests bench -type f \( -name '*.[ch]' -o -name '*.sh' -o -name run \
        -o -name '*.hpp' -o -name '*.cc' -o -name '*.json' -o -name '*.txt' \) ! -path '*/.libs/*') > "$work/files"
fi
[ -s "$work/files" ] || {
    echo "lint: no source files found in $top_srcdir"
    status=1
}
check length rule_length "$top_srcdir" < "$work/files"
check notice rule_notice "$top_srcdir" < "$work/files"
check paths rule_paths "$top_srcdir" < "$work/files"

[ $status = 0 ] && echo "lint: $count rules hold"
exit $status
