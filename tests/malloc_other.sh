#!/usr/bin/env bash
# libslate-malloc beside other allocators: blocks of libc's malloc, what is no block, sanitizers; and
# C++'s operator new when memory ends.
# SPDX-License-Identifier: MIT
set -u
name=malloc_other
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared

# ---- a library bound to libc's malloc, whose blocks the program frees

cat > "$work/deep.c" << 'EOT'
#include <stdlib.h>
#include <string.h>

char *deep_malloc(size_t size);
void deep_free(char *block);

char *deep_malloc(size_t size)
{
    char *block = malloc(size);
    if (block != NULL)
        memset(block, 7, size);
    return block;
}

void deep_free(char *block) { free(block); }
EOT
cat > "$work/deep-program.c" << 'EOT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
    void *library = dlopen(words[count - 1], RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL)
        return 1;
    char *(*deep_malloc)(size_t);
    *(void **)&deep_malloc = dlsym(library, "deep_malloc");
    static const size_t sizes[] = {1, 24, 100, 1000, 5000, 70000, 200000, 3000000};
    for (unsigned round = 0; round < 50; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t size = sizes[i];
            char *block = deep_malloc(size), *second = deep_malloc(size), *third = deep_malloc(size);
            /* glibc's: 8 bytes above a multiple of 16, but for mappings. */
            if (malloc_usable_size(block) < size || (size < 100000 && malloc_usable_size(block) % 16 != 8))
                return 2;
            errno = 77;
            free(block);
            if (errno != 77)
                return 3;
            second = realloc(second, size * 2);
            for (size_t at = 0; at < size; at++)
                if (second[at] != 7)
                    return 4;
            free(second);
            third = realloc(third, size / 2 + 1);
            if (third == NULL || third[size / 2] != 7)
                return 5;
            free(third);
            free(malloc(size));
        }
    return 0;
}
EOT
if compile deep.so -shared -fPIC "$work/deep.c" && compile deep "$work/deep-program.c"; then
    for policy in $policies; do
        expect 0 "blocks of libc's malloc, policy $policy" on "$policy" "$work/deep" "$work/deep.so"
    done
fi

# ---- what is no block is told of, and nothing happens

cat > "$work/wrong.c" << 'EOT'
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char data[100000];
static void *unknown(void *address)
{
    __asm__("" : "+r"(address));
    return address;
}

int main(void)
{
    char local[100], *large = malloc(300000), *own = malloc(100);
    char *huge = malloc((size_t)300 << 30); /* more than the pool has: a mapping of its own */
    memset(large, 3, 300000);
    free(unknown(local + 16 - ((uintptr_t)local & 15)));
    free(unknown(data + 5000));
    free(unknown((void *)(uintptr_t)4096));
    free(unknown(large + 8192));
    if (realloc(unknown(data + 48), 100) != NULL || errno != EINVAL)
        return 1;
    if (malloc_usable_size(unknown(data + 4096)) != 0)
        return 2;
    free(unknown(huge != NULL ? huge + 4096 : data));
    free(large);
    for (int i = 0; i < 300000; i++)
        data[i % 100000] = 1;
    free(unknown(large)); /* twice */
    free(huge);
    free(own);
    for (size_t size = 1; size < 1000000; size = size * 2 + 1)
        free(malloc(size));
    return 0;
}
EOT
if compile wrong -fno-builtin -w "$work/wrong.c"; then
    for policy in $policies; do
        done_tests=$((done_tests + 1))
        on "$policy" "$work/wrong" 2> "$work/errors" || fail "wrong addresses, policy $policy: exit $?"
        told=$(grep -cE '^slate: (free|realloc) of 0x[0-9a-f]+, which is no block' "$work/errors")
        { [ "$told" = 7 ] && [ "$(wc -l < "$work/errors")" = 7 ]; } ||
            fail "wrong addresses, policy $policy: $told of 7 were told of: $(cat "$work/errors")"
    done
fi

# ---- sanitizers: their malloc serves, slate says so once and stays out

cat > "$work/sanitized.c" << 'EOT'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *run(void *argument)
{
    for (int i = 0; i < 100; i++)
        free(realloc(calloc(1, 100), i * 100 + 1));
    return argument;
}

int main(int count, char **words)
{
    pthread_t thread;
    void *aligned = NULL;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    if (posix_memalign(&aligned, 64, 100) != 0)
        return 1;
    free(aligned);
    char *volatile block = malloc(10);
    free(block);
    if (count > 1 && strcmp(words[1], "wrong") == 0)
        return block[3]; /* which the sanitizer finds */
    return 0;
}
EOT
sanitize() {
    local what=$1 runs=0 options
    shift
    # shellcheck disable=SC2086
    $* -w -O1 -g "$work/sanitized.c" -pthread -o "$work/sanitized" > "$work/log" 2>&1 || {
        echo "$what: skipped, it does not link here"
        return
    }
    # Some machines' address space is laid out as the sanitizer does not like it; not slate's matter.
    setarch -R "$work/sanitized" > "$work/log" 2>&1 || {
        echo "$what: skipped, it does not run here without slate either"
        return
    }
    done_tests=$((done_tests + 1))
    options="verify_asan_link_order=0:detect_leaks=0"
    setarch -R env ASAN_OPTIONS=$options LD_PRELOAD="$libslate" "$work/sanitized" > "$work/out" 2> "$work/errors" ||
        fail "$what: exit $?: $(head -n 3 "$work/errors")"
    runs=$(grep -c '^slate: .*Sanitizer.*stays out$' "$work/errors")
    # One that does not export its names is not seen, and need not be: slate's malloc is not called.
    { [ "$runs" = 1 ] || { [ "$runs" = 0 ] && [[ $what = *"linked in"* ]]; }; } ||
        fail "$what: slate says $runs times that it stays out: $(cat "$work/errors")"
    [[ $what = *Thread* ]] && return
    setarch -R env ASAN_OPTIONS=$options LD_PRELOAD="$libslate" "$work/sanitized" wrong > "$work/out" 2> "$work/errors" &&
        fail "$what: the sanitizer finds nothing any more"
    grep -q 'AddressSanitizer: heap-use-after-free' "$work/errors" ||
        fail "$what: the sanitizer does not name the error: $(head -n 3 "$work/errors")"
}
if command -v setarch > /dev/null; then
    if ${CC%% *} --version 2> /dev/null | grep -qi 'free software foundation'; then
        sanitize "AddressSanitizer of GCC" "$CC" -fsanitize=address
        sanitize "AddressSanitizer of GCC, linked in" "$CC" -fsanitize=address -static-libasan
        sanitize "ThreadSanitizer of GCC" "$CC" -fsanitize=thread
    fi
    if command -v clang > /dev/null; then
        sanitize "AddressSanitizer of Clang, linked in" clang -fsanitize=address
        sanitize "ThreadSanitizer of Clang" clang -fsanitize=thread
    fi
else
    echo "sanitizers: skipped, setarch is missing (Debian: util-linux)"
fi

# ---- C++

cat > "$work/new.cc" << 'EOT'
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

struct alignas(128) wide {
    char text[128];
};

static int asked;
static volatile std::size_t huge = PTRDIFF_MAX - 100000;

static void ask()
{
    if (++asked == 3)
        std::set_new_handler(nullptr);
}

template <class F> static bool throws(F make)
{
    try {
        make();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

extern "C" int use_new()
{
    if (!throws([] { ::operator delete(::operator new(huge)); }) ||
        !throws([] { ::operator delete[](::operator new[](huge)); }) ||
        !throws([] { ::operator delete(::operator new(huge, std::align_val_t(64)), std::align_val_t(64)); }))
        return 1;
    asked = 0;
    std::set_new_handler(ask);
    if (!throws([] { ::operator delete(::operator new(huge)); }) || asked != 3)
        return 2;
    if (::operator new(huge, std::nothrow) != nullptr ||
        ::operator new[](huge, std::nothrow) != nullptr ||
        ::operator new(huge, std::align_val_t(4096), std::nothrow) != nullptr)
        return 3;
    wide *many = new wide[10];
    wide *one = new wide;
    if (reinterpret_cast<std::uintptr_t>(many) % 128 != 0 || reinterpret_cast<std::uintptr_t>(one) % 128 != 0)
        return 4;
    delete[] many;
    delete one;
    std::vector<int> numbers;
    for (int i = 0; i < 1000000; i++)
        numbers.push_back(i);
    char *text = new (std::nothrow) char[0];
    if (text == nullptr || numbers[999999] != 999999)
        return 5;
    delete[] text;
    return 0;
}
#ifdef PROGRAM
int main() { return use_new(); }
#endif
EOT
cat > "$work/loads-cxx.c" << 'EOT'
#include <dlfcn.h>

int main(int count, char **words)
{
    void *library = dlopen(words[count - 1], RTLD_NOW | RTLD_LOCAL);
    int (*use_new)(void);
    if (library == 0)
        return 9;
    *(void **)&use_new = dlsym(library, "use_new");
    return use_new();
}
EOT
cxx() {
    local output=$1
    shift
    # shellcheck disable=SC2086
    "$@" -std=c++17 -w -O1 -o "$work/$output" > "$work/log" 2>&1 || {
        echo "$output: skipped, it does not compile: $(head -n 1 "$work/log")"
        return 1
    }
}
if [ -n "$CXX" ] && command -v "${CXX%% *}" > /dev/null; then
    # shellcheck disable=SC2086
    cxx new $CXX -DPROGRAM "$work/new.cc" && for policy in $policies; do
        expect 0 "operator new, policy $policy" on "$policy" "$work/new"
    done
    # shellcheck disable=SC2086
    cxx new-linked $CXX -DPROGRAM "$work/new.cc" "$archive" -pthread && expect 0 "operator new, linked" "$work/new-linked"
    # A C program whose plugin brings the C++ library.
    # shellcheck disable=SC2086
    cxx new.so $CXX -shared -fPIC "$work/new.cc" && compile loads-cxx "$work/loads-cxx.c" &&
        expect 0 "operator new in a plugin of a C program" on shared "$work/loads-cxx" "$work/new.so"
else
    echo "C++: skipped, there is no compiler (Debian: g++)"
fi
finish
