/* lib/malloc_other.c - libslate-malloc beside another malloc: blocks that are not slate's, and
 * sanitizers.
 *
 * SPDX-License-Identifier: MIT
 *
 * A library loaded with RTLD_DEEPBIND calls the C library's own malloc, and another may free what
 * it returned.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "malloc_names.h"
#include "os.h"
#include "other.h"
#include "report.h"
#include "reserve.h"

/* Weak, so that a program without shared libraries links: it has no other malloc. */
extern void *dlsym(void *restrict handle, const char *restrict name) __attribute__((weak));

/* Whatever runtime of a sanitizer is in the process. */
extern void address_sanitizer(void) __asm__("__asan_init") __attribute__((weak));
extern void thread_sanitizer(void) __asm__("__tsan_init") __attribute__((weak));
extern void memory_sanitizer(void) __asm__("__msan_init") __attribute__((weak));
extern void leak_sanitizer(void) __asm__("__lsan_init") __attribute__((weak));

static const char *sanitizer(void)
{
    if (address_sanitizer != NULL)
        return "AddressSanitizer";
    if (thread_sanitizer != NULL)
        return "ThreadSanitizer";
    if (memory_sanitizer != NULL)
        return "MemorySanitizer";
    return leak_sanitizer != NULL ? "LeakSanitizer" : NULL;
}

bool slatei_other_rules(void) { return sanitizer() != NULL && dlsym != NULL; }

/* By now the sanitizer is ready, which at the first allocation it need not be. */
static __attribute__((constructor)) void tell(void)
{
    if (slatei_other_rules())
        slatei_report("this program has ", sanitizer(),
                      ", whose malloc has to be used: libslate-malloc stays out", NULL);
}

/* What stands behind this library: a sanitizer's when it rules, else the C library's own names,
 * which no other library has. */
enum { MALLOC, MEMALIGN, FREE, REALLOC, USABLE, FUNCTIONS };

typedef void (*any_function)(void);

static any_function next(unsigned function)
{
    static const char *const names[2][FUNCTIONS] = {
        {"__libc_malloc", "__libc_memalign", "__libc_free", "__libc_realloc", "malloc_usable_size"},
        {"malloc", "memalign", "free", "realloc", "malloc_usable_size"},
    };
    /* Any thread may store it; it is always the same. */
    static _Atomic(void *) known[FUNCTIONS];
    /* The thread that is looking: dlsym may itself allocate and free.  Another thread's number or
     * none is all that the others can find here. */
    static atomic_uintptr_t looking;
    uintptr_t self = (uintptr_t)pthread_self();
    any_function result;
    void *found = atomic_load_explicit(&known[function], memory_order_relaxed);
    if (dlsym == NULL ||
        (found == NULL && atomic_load_explicit(&looking, memory_order_relaxed) == self))
        return NULL;
    if (found == NULL) {
        atomic_store_explicit(&looking, self, memory_order_relaxed);
        found = dlsym(RTLD_NEXT, names[slatei_other_rules()][function]);
        atomic_store_explicit(&known[function], found, memory_order_relaxed);
        atomic_store_explicit(&looking, 0, memory_order_relaxed);
    }
    *(void **)&result = found;
    return result;
}

void *slatei_other_alloc(size_t alignment, size_t size)
{
    /* Blocks are cleared and copied in lines of 16 bytes. */
    if (size > PTRDIFF_MAX)
        return NULL;
    size = slatei_round_up(size, 16);
    if (alignment <= 16) {
        void *(*function)(size_t) = (void *(*)(size_t))next(MALLOC);
        return function != NULL ? function(size) : NULL;
    }
    void *(*function)(size_t, size_t) = (void *(*)(size_t, size_t))next(MEMALIGN);
    return function != NULL ? function(alignment, size) : NULL;
}

static bool readable(uintptr_t address)
{
    size_t page = slatei_os_page_size(), resident;
    return slatei_os_resident((const void *)(address & ~(page - 1)), page, &resident) == 0;
}

/* What glibc's malloc keeps before a block: its size with three flags, and before that, of a block
 * with a mapping of its own, the bytes up to the mapping's start.  Of any other the next block's
 * size says with a flag that this one is in use.  (malloc/malloc.c, "malloc_chunk"; the same since
 * 2.0.)  All of it is right by chance once in many thousands at most. */
static bool looks_like_glibc(const void *block)
{
    enum { IN_USE = 1, MAPPED = 2, FLAGS = 7, HEAD = 16, LEAST = 32 };
    uintptr_t at = (uintptr_t)block;
    if (at % 16 != 0 || at < HEAD || !readable(at - HEAD))
        return false;
    const size_t *words = (const size_t *)block;
    size_t size = words[-1] & ~(size_t)FLAGS, page = slatei_os_page_size();
    if (size < LEAST || size % 16 != 0 || size > PTRDIFF_MAX - at)
        return false;
    if (words[-1] & MAPPED)
        return (at - HEAD - words[-2]) % page == 0 && (words[-2] + size) % page == 0;
    uintptr_t following = at - HEAD + size + sizeof(size_t);
    return readable(following) && (*(const size_t *)following & IN_USE) != 0;
}

static bool is_other(const void *block)
{
    if (slatei_other_rules())
        return true;
    slatei_os_start();
    return !slatei_in_reserve(block) && looks_like_glibc(block);
}

bool slatei_other_free(void *block)
{
    void (*function)(void *) = NULL;
    int saved = errno;
    if (is_other(block))
        function = (void (*)(void *))next(FREE);
    if (function != NULL)
        function(block);
    errno = saved;
    /* What cannot be freed yet, of the malloc that rules, is lost. */
    return function != NULL || slatei_other_rules();
}

bool slatei_other_realloc(void *block, size_t size, void **moved)
{
    void *(*function)(void *, size_t) = NULL;
    if (is_other(block))
        function = (void *(*)(void *, size_t))next(REALLOC);
    if (function != NULL)
        *moved = function(block, size);
    return function != NULL;
}

bool slatei_other_usable(const void *block, size_t *size)
{
    size_t (*function)(void *) = NULL;
    if (is_other(block))
        function = (size_t(*)(void *))next(USABLE);
    if (function != NULL)
        *size = function((void *)(uintptr_t)block);
    return function != NULL;
}
