#!/usr/bin/env bash
# Checks `slate run`: that the command runs on slate, its exit status, what it inherits, statistics,
# an installed tree, errors.
# SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}" "${top_builddir:=$top_srcdir}"
: "${CC:=cc}" "${SANITIZER:=}"
slate=$top_builddir/bench/slate
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!SLATE_@}" LD_PRELOAD GLIBC_TUNABLES
failures=0

if [ ! -x "$slate" ]; then
    echo "run_command: $slate is not built"
    exit 1
fi

fail() {
    echo "run_command: $*"
    failures=$((failures + 1))
}

# run STATUS ARGUMENT...: runs it, expects that exit code; output in $work/out and $work/errors.
run() {
    local expected=$1 status=0
    shift
    "$slate" run "$@" > "$work/out" 2> "$work/errors" || status=$?
    [ "$status" = "$expected" ] ||
        fail "run $*: exit $status, not $expected: $(tail -n 3 "$work/errors")"
}

# refused STATUS WORDS ARGUMENT...: that exit code, one line on stderr with WORDS, nothing on stdout.
refused() {
    local words=$2
    run "$1" "${@:3}"
    [ -s "$work/out" ] && fail "run ${*:3}: output beside the error"
    [ "$(wc -l < "$work/errors")" = 1 ] || fail "run ${*:3}: not one line: $(cat "$work/errors")"
    grep -qF -- "$words" "$work/errors" || fail "run ${*:3}: \"$words\" missing in: $(cat "$work/errors")"
}

# printed TEXT: all that the last run wrote to stdout.
printed() {
    [ "$(cat "$work/out")" = "$1" ] || fail "not \"$1\" but \"$(cat "$work/out")\""
}

# ---- errors --------------------------------------------------------------------------------------

refused 2 'a command is missing'
refused 2 'a command is missing' --stats --
refused 2 'unknown option "--frob"' --frob true
refused 2 'unknown option "-x"' -x true
refused 2 'option --policy wants a value' --policy
refused 2 '--policy "frob": allowed is never, always, switch or shared' --policy frob true
refused 2 '--policy "": allowed is' --policy '' true
refused 2 '--switch "-1": allowed is 0 to 1T' --switch -1 true
refused 2 '--switch "2T": allowed is 0 to 1T' --switch 2T true
run 0 --help
for option in --policy --switch --stats; do
    grep -q -- "$option" "$work/out" || fail "--help says nothing of $option"
done

library=$top_builddir/lib/.libs/libslate-malloc.so
if [ ! -e "$library" ]; then
    refused 1 'libslate-malloc.so is neither beside this program' true
    [ "$failures" = 0 ] || exit 1
    echo "skipped: libslate-malloc.so is not built (a sanitizer, or --disable-shared)"
    exit 77
fi
library=$(readlink -f "$library")

# ---- exit status ---------------------------------------------------------------------------------

touch "$work/plain"
mkdir "$work/folder"
for stats in '' --stats; do
    # shellcheck disable=SC2086
    {
        run 0 $stats true
        run 1 $stats -- false
        run 77 $stats sh -c 'exit 77'
        refused 127 "$work/none: No such file or directory" $stats "$work/none"
        refused 127 "$work/plain/x: Not a directory" $stats "$work/plain/x"
        refused 126 "$work/plain: Permission denied" $stats "$work/plain"
        refused 126 "$work/folder: Permission denied" $stats -- "$work/folder"
    }
done
# The shell says itself what a signal came to when slate run has become the command.
for signal in TERM KILL SEGV; do
    number=$(kill -l $signal)
    run $((128 + number)) --stats sh -c "kill -$signal \$\$"
    status=0
    bash -c '"$0" run sh -c "kill -$1 \$\$"; exit $?' "$slate" $signal > /dev/null 2>&1 || status=$?
    [ $status = $((128 + number)) ] || fail "killed by $signal: exit $status"
done

# What is sent to slate run --stats reaches the command.
"$slate" run --stats sh -c 'trap "echo told; exit 5" TERM; echo ready; while :; do sleep 0.05; done' \
    > "$work/out" 2> "$work/errors" &
process=$!
until grep -q ready "$work/out" || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
kill -TERM $process
status=0
wait $process || status=$?
[ $status = 5 ] || fail "SIGTERM: exit $status, not 5"
grep -q told "$work/out" || fail "SIGTERM did not reach the command"

# ---- what the command inherits -------------------------------------------------------------------

run 0 -- sh -c 'printf %s "$LD_PRELOAD"'
printed "$library"
run 0 printf '%s|' --stats -- 'a b' ''
printed '--stats|--|a b||'
run 0 -- "$slate" run -- sh -c 'printf %s "$LD_PRELOAD"'
printed "$library"
run 0 --policy shared --switch 4M -- sh -c 'printf %s "$SLATE_POLICY $SLATE_SWITCH"'
printed 'shared 4M'
SLATE_POLICY=never SLATE_SWITCH=2M run 0 --policy always -- sh -c 'printf %s "$SLATE_POLICY $SLATE_SWITCH"'
printed 'always 2M'
run 0 -- sh -c 'printf %s "${SLATE_POLICY-unset} ${SLATE_STATS-unset}"'
printed 'unset unset'
run 3 -- sh -c 'read -r line; echo "$line"; exit 3' < <(echo a line)
printed 'a line'

cat > "$work/who.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    Dl_info malloc_is;
    void *volatile block = malloc(100);
    free(block);
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &malloc_is))
        return 1;
    puts(malloc_is.dli_fname);
    return getenv("OTHER_LOADED") ? 10 : 0;
}
END
cat > "$work/other.c" << 'END'
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) { setenv("OTHER_LOADED", "1", 1); }
END
$CC -o "$work/who" "$work/who.c" -ldl && $CC -shared -fPIC -o "$work/other.so" "$work/other.c" ||
    fail "the examples do not compile"
run 0 "$work/who"
printed "$library"
LD_PRELOAD=$work/other.so run 10 "$work/who"
printed "$library"
LD_PRELOAD=$work/other.so run 0 -- sh -c 'printf %s "$LD_PRELOAD"'
printed "$library:$work/other.so"

# ---- statistics ----------------------------------------------------------------------------------

summary='^slate: run: user [0-9]+\.[0-9]{3} s, system [0-9.]+ s, wall [0-9.]+ s, peak RSS [0-9.]+ MiB \(of the largest process\), [0-9]+ minor faults, [0-9]+ major$'
run 0 "$work/who"
[ -s "$work/errors" ] && fail "without --stats: $(cat "$work/errors")"
run 0 --stats "$work/who"
printed "$library"
[ "$(grep -cE "$summary" "$work/errors")" = 1 ] || fail "--stats: no summary in: $(cat "$work/errors")"
grep -qE '^slate: +[0-9]+  committed$' "$work/errors" || fail "--stats: nothing of slate's own: $(cat "$work/errors")"
tail -n 1 "$work/errors" | grep -qE "$summary" || fail "--stats: the summary is not last"
SLATE_STATS=json run 0 --stats "$work/who"
grep -q '"committed"' "$work/errors" || fail "SLATE_STATS=json --stats: no JSON in: $(cat "$work/errors")"
grep -qE "$summary" "$work/errors" || fail "SLATE_STATS=json --stats: no summary"

# ---- installed, and moved ------------------------------------------------------------------------

# The make that runs this test must not hand its job server on.
if ! env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u DESTDIR "${MAKE:-make}" -C "$top_builddir" -s \
    install-binPROGRAMS install-libLTLIBRARIES DESTDIR="$work/root" > "$work/log" 2>&1; then
    fail "make install: $(tail -n 5 "$work/log")"
fi
program=$(find "$work/root" -name slate -type f -perm -u+x | head -n 1)
installed=$(find "$work/root" -name 'libslate-malloc.so*' -type f | head -n 1)
[ "$("$program" run "$work/who")" = "$installed" ] || fail "the installed program does not find the installed library"

mkdir "$work/beside" "$work/odd name"
cp "$slate" "$work/beside/slate"
cp "$library" "$work/beside/libslate-malloc.so.0"
[ "$("$work/beside/slate" run "$work/who")" = "$work/beside/libslate-malloc.so.0" ] ||
    fail "the library beside the program is not found"
cp "$slate" "$work/odd name/slate"
cp "$library" "$work/odd name/libslate-malloc.so"
status=0
"$work/odd name/slate" run true 2> "$work/errors" || status=$?
if [ $status != 1 ] || ! grep -q 'a name with a space or colon cannot be preloaded' "$work/errors"; then
    fail "a path with a space: exit $status, $(cat "$work/errors")"
fi

[ "$failures" = 0 ] && echo "run_command: all as it should be"
[ "$failures" = 0 ]
