#!/usr/bin/env bash
# Starts programs on libslate-malloc in ways that have broken allocators: allocations before any
# constructor and from dlsym, other preloads, exhausted static TLS, set-user-id, an environment that
# is written over.
# SPDX-License-Identifier: MIT
set -u
name=malloc_start
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared
all_policies() {
    local what=$1 policy
    shift
    for policy in $policies; do
        expect 0 "$what, policy $policy" on "$policy" "$@"
    done
}

# ---- before any constructor, the C library's own among them

cat > "$work/early.c" << 'EOT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static char *kept[4];

static void early(void)
{
    free(NULL);
    kept[0] = malloc(100);
    kept[1] = calloc(10, 10);
    kept[2] = realloc(NULL, 50);
    kept[3] = realloc(malloc(10), 30000);
    free(malloc(20));
    for (int i = 0; i < 4; i++)
        kept[i][0] = 1;
}

/* One in a program runs before those of its libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = early;

static int looked;

/* Looks for what is not there: dlerror's message is allocated, and freed by the next call. */
static __attribute__((constructor(101))) void look(void)
{
    for (int i = 0; i < 10; i++)
        if (dlsym(RTLD_DEFAULT, "there_is_no_such_function") == NULL && dlerror() != NULL)
            looked++;
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        if (kept[i] == NULL || kept[i][0] != 1)
            return 1;
        free(kept[i]);
    }
    return looked == 10 ? 0 : 2;
}
EOT
compile early "$work/early.c" && {
    all_policies "allocations before constructors" "$work/early"
    # The environment counts there too.
    SLATE_VERBOSE=1 on shared "$work/early" 2> "$work/errors" || fail "early, verbose: exit $?"
    grep -q '^slate: .* policy shared,' "$work/errors" ||
        fail "before the C library's start the environment is not found: $(cat "$work/errors")"
}
compile early-linked "$work/early.c" "$archive" -pthread && {
    expect 0 "allocations before constructors, linked" "$work/early-linked"
    SLATE_VERBOSE=1 SLATE_POLICY=never "$work/early-linked" 2> "$work/errors"
    grep -q '^slate: .* policy never,' "$work/errors" || fail "linked: the environment is not found before the C library's start"
}
# A library whose constructor allocates, loaded before and after slate; libnuma is one.
cat > "$work/constructor.c" << 'EOT'
#include <pthread.h>
#include <stdlib.h>

static void *run(void *argument) { return realloc(malloc(100), 3000) == NULL ? argument : NULL; }

static __attribute__((constructor)) void begin(void)
{
    pthread_t thread;
    char *volatile block = calloc(1, 5000);
    if (block == NULL || pthread_create(&thread, NULL, run, (void *)1) != 0)
        abort();
    free(block);
    pthread_join(thread, NULL);
}
EOT
compile constructor.so -shared -fPIC "$work/constructor.c" -pthread
for library in "$work/constructor.so" /usr/lib/*/libnuma.so.1; do
    [ -f "$library" ] || continue
    more_preloads=$library all_policies "${library##*/} behind slate" "$work/early"
    expect 0 "${library##*/} before slate" env LD_PRELOAD="$library $libslate" "$work/early"
done

# ---- another preload, that looks for the next malloc at its first use

cat > "$work/wrapper.c" << 'EOT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int looking;
/* For what dlsym wants meanwhile. */
static char early[4096] __attribute__((aligned(16)));
static size_t used;

static int look(void)
{
    if (next_free != NULL)
        return 1;
    if (looking)
        return 0;
    looking = 1;
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    return 1;
}
static int is_early(char *block) { return block >= early && block < early + sizeof early; }
static void *take(size_t size)
{
    used += (size + 15) & ~(size_t)15;
    return early + used - ((size + 15) & ~(size_t)15);
}
void *malloc(size_t size) { return look() ? next_malloc(size) : take(size); }
void *calloc(size_t count, size_t size) { return look() ? next_calloc(count, size) : take(count * size); }
void *realloc(void *block, size_t size) { return look() ? next_realloc(block, size) : take(size); }
void free(void *block)
{
    if (!is_early(block) && look())
        next_free(block);
}
EOT
if compile wrapper.so -shared -fPIC -fno-builtin "$work/wrapper.c"; then
    for policy in $policies; do
        expect 0 "a wrapper before slate, policy $policy" \
            env SLATE_POLICY="$policy" LD_PRELOAD="$work/wrapper.so $libslate" "$work/early"
        more_preloads=$work/wrapper.so
        expect 0 "a wrapper behind slate, policy $policy" on "$policy" "$work/early"
        more_preloads=
    done
    expect 0 "a wrapper around a shell" env LD_PRELOAD="$work/wrapper.so $libslate" bash -c 'x=$(echo one); test $x = one'
fi

# ---- static TLS: 8 bytes are slate's; whoever comes when there is none gets a clean error

cat > "$work/tls.c" << 'EOT'
__thread char area[SIZE] __attribute__((tls_model(MODEL)));
char *touch(void);
char *touch(void)
{
    area[SIZE - 1]++;
    return area;
}
EOT
cat > "$work/tls-program.c" << 'EOT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *(*touch[500])(void);
static int opened;

static void *run(void *argument)
{
    for (int i = 0; i < opened; i++)
        if (touch[i]() == NULL)
            return argument;
    free(malloc(100));
    return NULL;
}

/* FOLDER MALLOC: opens FOLDER/0.so, 1.so ... until one cannot be; then MALLOC. Prints how many. */
int main(int count, char **words)
{
    char path[4096];
    for (; count == 3 && opened < 500; opened++) {
        snprintf(path, sizeof path, "%s/%d.so", words[1], opened);
        void *library = dlopen(path, RTLD_NOW);
        if (library == NULL) {
            if (strstr(dlerror(), "static TLS") == NULL && opened == 0)
                return 1;
            break;
        }
        *(void **)&touch[opened] = dlsym(library, "touch");
        if (touch[opened] == NULL || touch[opened]() == NULL)
            return 2;
    }
    void *library = dlopen(words[2], RTLD_NOW);
    if (library != NULL) {
        void *(*other)(size_t);
        *(void **)&other = dlsym(library, "malloc");
        char *block = other(1000);
        if (block == NULL)
            return 3;
        memset(block, 1, 1000);
    } else if (strstr(dlerror(), "static TLS") == NULL) {
        return 4;
    }
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, run, (void *)1) != 0 || pthread_join(thread, &result) != 0 ||
            result != NULL)
            return 5;
    }
    printf("%d\n", opened);
    return 0;
}
EOT
mkdir "$work/initial" "$work/general"
if compile tls-program "$work/tls-program.c" -pthread &&
    compile initial/0.so -shared -fPIC -DSIZE=104 -DMODEL='"initial-exec"' "$work/tls.c" &&
    compile general/0.so -shared -fPIC -DSIZE=100000 -DMODEL='"global-dynamic"' "$work/tls.c"; then
    # The same library under many names is many libraries.
    for ((i = 1; i < 120; i++)); do
        cp "$work/initial/0.so" "$work/initial/$i.so"
        [ $i -lt 40 ] && cp "$work/general/0.so" "$work/general/$i.so"
    done
    expect 0 "static TLS without slate" "$work/tls-program" "$work/initial" "$libslate"
    without=$(cat "$work/out")
    { [ "$without" -gt 2 ] && [ "$without" -lt 120 ]; } || fail "static TLS was not exhausted: $without libraries"
    for policy in switch shared; do
        expect 0 "static TLS, policy $policy" on "$policy" "$work/tls-program" "$work/initial" "$libslate"
        with=$(cat "$work/out")
        [ "$with" -ge $((without - 1)) ] || fail "with slate only $with libraries get static TLS, without it $without"
        expect 0 "TLS of 4 MB, policy $policy" on "$policy" "$work/tls-program" "$work/general" "$libslate"
        [ "$(cat "$work/out")" = 40 ] || fail "only $(cat "$work/out") of 40 libraries could be opened"
    done
fi

# ---- set-user-id programs do as they would without the environment

cat > "$work/secure.c" << 'EOT'
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

int main(void)
{
    char *volatile block = malloc(10);
    printf("%lu\n", getauxval(AT_SECURE));
    return block == NULL;
}
EOT
if [ "$(id -u)" != 0 ] || ! command -v setpriv > /dev/null; then
    echo "set-user-id: skipped, it takes root and setpriv (Debian: util-linux)"
elif compile secure "$work/secure.c" "$archive" -pthread; then
    done_tests=$((done_tests + 2))
    as_nobody() { env SLATE_VERBOSE=1 SLATE_POLICY=nonsense setpriv --reuid=65534 --clear-groups "$work/secure"; }
    chmod 755 "$work" "$work/secure"
    as_nobody > "$work/out" 2> "$work/errors"
    [ "$(cat "$work/out") $(wc -l < "$work/errors")" = "0 2" ] ||
        fail "not set-user-id: AT_SECURE $(cat "$work/out"), $(wc -l < "$work/errors") lines and not 2"
    chmod 4755 "$work/secure"
    as_nobody > "$work/out" 2> "$work/errors"
    if [ "$(cat "$work/out")" != 1 ]; then
        echo "set-user-id: skipped, the file system of ${TMPDIR:-/tmp} does not allow it"
    elif [ -s "$work/errors" ]; then
        fail "a set-user-id program read the environment: $(cat "$work/errors")"
    fi
fi

# ---- what was read of the environment is kept, whatever becomes of the environment

cat > "$work/environment.c" << 'EOT'
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(void)
{
    char *volatile block = malloc(10);
    for (char **at = environ; *at != NULL; at++)
        memset(*at, 'x', strlen(*at));
    free(block);
    environ = NULL;
    block = malloc(100000);
    free(block);
    return block == NULL;
}
EOT
compile environment "$work/environment.c" && {
    done_tests=$((done_tests + 1))
    SLATE_STATS=json on never "$work/environment" > "$work/out" 2> "$work/errors" || fail "environment: exit $?"
    grep -q '"in_use": ' "$work/errors" || fail "SLATE_STATS is forgotten once the environment is overwritten"
}

# ---- the path by which slate reports and ends a process takes no lock and allocates nothing: all
# that it calls is known

mkdir "$work/objects" && (cd "$work/objects" && ar x "$archive" 2> /dev/null)
report=$(find "$work/objects" -name '*report.o')
done_tests=$((done_tests + 1))
if [ -z "$report" ]; then
    fail "report.o is not in $archive"
else
    calls=$(${NM:-nm} -u "$report" | awk '{ print $NF }' |
        grep -vxE '_GLOBAL_OFFSET_TABLE_|__errno_location|write|memcpy|memset|strlen|abort|__stack_chk_fail|__memcpy_chk')
    [ -z "$calls" ] || fail "report.c calls" $calls
fi
finish
