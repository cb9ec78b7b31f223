/* lib/malloc_cxx.c - C++'s operator new and operator delete, in all their forms.
 *
 * SPDX-License-Identifier: MIT
 *
 * Written in C, under the names that the Itanium C++ ABI gives them, so that the library needs no
 * C++ library.  Built with -fexceptions: what a C++ library throws passes through here.
 */
#define _GNU_SOURCE
/* Here the inlined fast path ends in a jump to a slow one that never returns NULL: a test of what a
 * call returned would cost the fast path a stack frame. */
#define slate_alloc_slow_ slatei_new_slow
#include <dlfcn.h>
#include <stdlib.h>

#include "debug.h"
#include "malloc_names.h"
#include "report.h"
#include "reserve.h"

/* Functions of whichever C++ library is in the process; NULL without one. */
/* Weak too, so that a program without shared libraries links. */
extern void *dlopen(const char *file, int mode) __attribute__((weak));
extern void *dlsym(void *restrict handle, const char *restrict name) __attribute__((weak));
extern int dlclose(void *handle) __attribute__((weak));

typedef void (*new_handler)(void);
extern new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* A C++ library that was loaded later, and for one plugin alone, is found by its name only. */
static void *find(const char *name)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    if (dlopen == NULL || dlsym == NULL || dlclose == NULL)
        return NULL;
    for (unsigned i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        void *found = library != NULL ? dlsym(library, name) : NULL;
        if (library != NULL)
            dlclose(library);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static new_handler handler(void)
{
    new_handler (*get)(void) = get_new_handler;
    if (get == NULL)
        *(void **)&get = find("_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

static _Noreturn void throw_it(void)
{
    void (*thrower)(void) = throw_bad_alloc;
    if (thrower == NULL)
        *(void **)&thrower = find("_ZSt17__throw_bad_allocv");
    if (thrower != NULL)
        thrower();
    slatei_report("operator new: out of memory, and no C++ library to throw std::bad_alloc", NULL);
    abort();
}

/* Asks the program's handler for memory until there is some or the handler gives up; without a
 * handler throws, or returns NULL. */
static __attribute__((noinline)) void *new_failed(size_t alignment, size_t size, bool nothrow)
{
    for (;;) {
        new_handler ask = handler();
        if (ask == NULL) {
            if (nothrow)
                return NULL;
            throw_it();
        }
        ask();
        void *block = slate_aligned_alloc(alignment, size);
        if (block != NULL)
            return block;
    }
}

__attribute__((noinline)) void *slatei_new_slow(size_t size)
{
    void *block = slate_alloc(size);
    return SLATE_LIKELY_(block != NULL) ? block : new_failed(1, size, false);
}

static inline void *new_plain(size_t size, bool nothrow)
{
    if (!nothrow)
        return slate_alloc_inline_(size);
    void *block = slate_alloc(size);
    return SLATE_LIKELY_(block != NULL) ? block : new_failed(1, size, true);
}

static inline void *new_aligned(size_t size, size_t alignment, bool nothrow)
{
    void *block = slate_aligned_alloc(alignment, size);
    return SLATE_LIKELY_(block != NULL) ? block : new_failed(alignment, size, nothrow);
}

/* A function under a C++ name. */
#define OPERATOR(result, name, mangled, ...)                                                       \
    SLATEI_EXPORT result name(__VA_ARGS__) __asm__(LINKED_AS(mangled));                            \
    result name(__VA_ARGS__)

/* The second argument of the nothrow forms is a reference to std::nothrow. */
OPERATOR(void *, new_one, "_Znwm", size_t size) { return new_plain(size, false); }
OPERATOR(void *, new_many, "_Znam", size_t size) { return new_plain(size, false); }
OPERATOR(void *, new_one_nothrow, "_ZnwmRKSt9nothrow_t", size_t size, const void *tag)
{
    (void)tag;
    return new_plain(size, true);
}
OPERATOR(void *, new_many_nothrow, "_ZnamRKSt9nothrow_t", size_t size, const void *tag)
{
    (void)tag;
    return new_plain(size, true);
}
OPERATOR(void *, new_one_aligned, "_ZnwmSt11align_val_t", size_t size, size_t alignment)
{
    return new_aligned(size, alignment, false);
}
OPERATOR(void *, new_many_aligned, "_ZnamSt11align_val_t", size_t size, size_t alignment)
{
    return new_aligned(size, alignment, false);
}
OPERATOR(void *, new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", size_t size,
         size_t alignment, const void *tag)
{
    (void)tag;
    return new_aligned(size, alignment, true);
}
OPERATOR(void *, new_many_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", size_t size,
         size_t alignment, const void *tag)
{
    (void)tag;
    return new_aligned(size, alignment, true);
}

#define DELETE(name, mangled)                                                                      \
    OPERATOR(void, name, mangled, void *block)                                                     \
    {                                                                                              \
        slatei_debug_block(block);                                                                 \
        slate_free_inline_(block);                                                                 \
    }
/* What the other forms tell beside the address is not needed. */
#define DELETE_TOLD(name, mangled, ...)                                                            \
    OPERATOR(void, name, mangled, void *block, __VA_ARGS__)                                        \
    {                                                                                              \
        slatei_debug_block(block);                                                                 \
        slate_free_inline_(block);                                                                 \
    }
#define UNUSED __attribute__((unused))

DELETE(delete_one, "_ZdlPv")
DELETE(delete_many, "_ZdaPv")
DELETE_TOLD(delete_one_sized, "_ZdlPvm", UNUSED size_t size)
DELETE_TOLD(delete_many_sized, "_ZdaPvm", UNUSED size_t size)
DELETE_TOLD(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", UNUSED const void *tag)
DELETE_TOLD(delete_many_nothrow, "_ZdaPvRKSt9nothrow_t", UNUSED const void *tag)
DELETE_TOLD(delete_one_aligned, "_ZdlPvSt11align_val_t", UNUSED size_t alignment)
DELETE_TOLD(delete_many_aligned, "_ZdaPvSt11align_val_t", UNUSED size_t alignment)
DELETE_TOLD(delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", UNUSED size_t size,
            UNUSED size_t alignment)
DELETE_TOLD(delete_many_sized_aligned, "_ZdaPvmSt11align_val_t", UNUSED size_t size,
            UNUSED size_t alignment)
DELETE_TOLD(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",
            UNUSED size_t alignment, UNUSED const void *tag)
DELETE_TOLD(delete_many_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",
            UNUSED size_t alignment, UNUSED const void *tag)
