/* tests/check_malloc.c - libc's allocation functions: what each returns, errno, contents,
 * alignment.
 *
 * SPDX-License-Identifier: MIT
 *
 * Built twice: with the functions under names of their own, inside this program; and as
 * malloc_unit, which calls whatever malloc its process has (libslate-malloc linked or preloaded).
 */
#define _GNU_SOURCE
#include "malloc_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

#include "check_support.h"

extern void *operator_new(size_t size) __asm__(LINKED_AS("_Znwm"));
extern void operator_delete(void *block) __asm__(LINKED_AS("_ZdlPv"));
extern void *operator_new_nothrow(size_t size,
                                  const void *tag) __asm__(LINKED_AS("_ZnwmRKSt9nothrow_t"));
extern void *operator_new_aligned(size_t size,
                                  size_t alignment) __asm__(LINKED_AS("_ZnwmSt11align_val_t"));
extern void *operator_new_aligned_nothrow(size_t size, size_t alignment, const void *tag) __asm__(
    LINKED_AS("_ZnwmSt11align_val_tRKSt9nothrow_t"));
extern void
operator_delete_sized_aligned(void *block, size_t size,
                              size_t alignment) __asm__(LINKED_AS("_ZdlPvmSt11align_val_t"));

#ifdef SLATEI_MALLOC_PREFIX
#define SUITE "malloc"
#else
#define SUITE "malloc_unit"
#endif

/* The compiler knows what the functions mean: it must not do without the calls. */
static void *volatile kept;
static volatile size_t all_bits = SIZE_MAX;
static char tag;

/* An address of which the compiler knows nothing, nor that a failed call left it alone. */
static void *unknown(void *address)
{
    __asm__("" : "+r"(address));
    return address;
}

static size_t huge_sizes[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 4096, SIZE_MAX - 1,
                              SIZE_MAX};
enum { HUGE_SIZES = sizeof huge_sizes / sizeof *huge_sizes };

static void require_no_memory(void *block)
{
    kept = block;
    require(kept == NULL);
    require_equal(errno, ENOMEM);
    errno = 0;
}

static bool is_zero(const char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != 0)
            return false;
    return true;
}

CHILD_TEST(blocks_of_0_bytes_differ)
{
    char *one = LIBC(malloc)(0), *two = LIBC(malloc)(0), *three = LIBC(calloc)(0, 8);
    require(one != NULL && two != NULL && three != NULL);
    require(one != two && two != three && one != three);
    LIBC(free)(one);
    LIBC(free)(two);
    LIBC(free)(three);
    LIBC(free)(NULL);
}

CHILD_TEST(every_block_is_aligned)
{
    for (size_t size = 0; size < 20000; size += size < 2048 ? 1 : 61) {
        char *block = LIBC(malloc)(size), *zero = LIBC(calloc)(1, size);
        char *moved = LIBC(realloc)(NULL, size);
        require_equal((uintptr_t)block % 16, 0);
        require_equal((uintptr_t)zero % 16, 0);
        require_equal((uintptr_t)moved % 16, 0);
        LIBC(free)(block);
        LIBC(free)(zero);
        LIBC(free)(moved);
    }
}

CHILD_TEST(alignments_up_to_1_gib)
{
    for (size_t alignment = 8; alignment <= GIB; alignment *= 2)
        for (unsigned i = 0; i < 4; i++) {
            if (slow_here() && alignment > 64 * MIB)
                continue;
            size_t size = i == 0 ? 0 : i == 1 ? 1 : i == 2 ? alignment / 2 + 3 : 10000;
            char *block = NULL;
            require_equal(LIBC(posix_memalign)((void **)&block, alignment, size), 0);
            char *second = LIBC(memalign)(alignment, size);
            char *third = LIBC(aligned_alloc)(alignment, size);
            require(block != NULL && second != NULL && third != NULL);
            require(((uintptr_t)block | (uintptr_t)second | (uintptr_t)third) % alignment == 0);
            require_at_least(LIBC(malloc_usable_size)(block), size);
            if (size != 0) {
                block[0] = block[size - 1] = 1;
                second[size - 1] = third[size - 1] = 1;
            }
            LIBC(free)(block);
            LIBC(free_aligned_sized)(second, alignment, size);
            LIBC(free)(third);
        }
}

CHILD_TEST(wrong_alignments)
{
    /* Volatile: Clang 14 crashes where it knows that an alignment is none. */
    for (volatile size_t alignment = 0; alignment < 100; alignment++) {
        if (alignment != 0 && (alignment & (alignment - 1)) == 0)
            continue;
        void *untouched = &tag;
        errno = 77;
        require_equal(LIBC(posix_memalign)(&untouched, alignment, 100), EINVAL);
        require(untouched == &tag);
        require_equal(errno, 77);
        require((kept = LIBC(aligned_alloc)(alignment, 100)) == NULL);
        require_equal(errno, EINVAL);
        if (alignment == 0)
            continue;
        errno = 0;
        require((kept = LIBC(memalign)(alignment, 100)) == NULL);
        require_equal(errno, EINVAL);
    }
    void *block = NULL;
    require_equal(LIBC(posix_memalign)(&block, 4, 100), EINVAL);
    /* A power of two that no address space has room for is no wrong one. */
    require_equal(LIBC(posix_memalign)(&block, all_bits / 4 + 1, 100), ENOMEM);
    errno = 0;
    require_no_memory(LIBC(memalign)(all_bits / 4 + 1, 100));
}

CHILD_TEST(whole_pages)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 70000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = LIBC(valloc)(sizes[i]), *rounded = LIBC(pvalloc)(sizes[i]);
        require(block != NULL && rounded != NULL);
        require(((uintptr_t)block | (uintptr_t)rounded) % page == 0);
        require_at_least(LIBC(malloc_usable_size)(rounded), (sizes[i] + page - 1) / page * page);
        LIBC(free)(block);
        LIBC(free)(rounded);
    }
    errno = 0;
    require_no_memory(LIBC(pvalloc)(all_bits - 10));
    require_no_memory(LIBC(valloc)(all_bits - 10));
}

CHILD_TEST(all_that_is_usable_can_be_written)
{
    enum { BLOCKS = 1500 };
    static char *blocks[BLOCKS];
    static size_t usable[BLOCKS];
    struct random random = {3};
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t size = i < 1000 ? i : below(&random, 100000);
        blocks[i] = LIBC(malloc)(size);
        require(blocks[i] != NULL);
        usable[i] = LIBC(malloc_usable_size)(blocks[i]);
        require_at_least(usable[i], size);
        memset(blocks[i], (int)i, usable[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        for (size_t at = 0; at < usable[i]; at++)
            require_equal((unsigned char)blocks[i][at], i & 255);
        /* What was written beyond the size asked for moves with the rest. */
        size_t most = usable[i];
        blocks[i] = LIBC(realloc)(blocks[i], most * 3 + 1);
        for (size_t at = 0; at < most; at++)
            require_equal((unsigned char)blocks[i][at], i & 255);
        LIBC(free)(blocks[i]);
    }
    require_equal(LIBC(malloc_usable_size)(NULL), 0);
}

/* Fills free memory with other bytes in all the ways that there are. */
static void dirty(size_t size)
{
    enum { BLOCKS = 40 };
    char *blocks[BLOCKS];
    unsigned count = size < MIB ? BLOCKS : 4;
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = LIBC(malloc)(size);
        memset(blocks[i], 0xaa, LIBC(malloc_usable_size)(blocks[i]));
        if (i % 3 == 0) {
            blocks[i] = LIBC(realloc)(blocks[i], size * 2 + 100);
            memset(blocks[i], 0xbb, LIBC(malloc_usable_size)(blocks[i]));
            blocks[i] = LIBC(realloc)(blocks[i], size / 3 + 1);
        }
    }
    for (unsigned i = 0; i < count; i++)
        LIBC(free)(blocks[i]);
}

static void check_zeroes(size_t size)
{
    enum { BLOCKS = 50 };
    char *blocks[BLOCKS];
    unsigned count = size < MIB ? BLOCKS : 6;
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = LIBC(calloc)(i % 2 ? 1 : size, i % 2 ? size : 1);
        require(blocks[i] != NULL);
        require(is_zero(blocks[i], size));
        memset(blocks[i], 0xcc, size);
    }
    for (unsigned i = 0; i < count; i++)
        LIBC(free)(blocks[i]);
}

CHILD_TEST(calloc_gives_zeroes)
{
    static const size_t sizes[] = {1,    8,     16,    17,    100,    512,     513,
                                   5000, 16384, 16385, 65536, 300000, 3000000, 9000000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (slow_here() && sizes[i] > 400000)
            break;
        dirty(sizes[i]);
        check_zeroes(sizes[i]);
        LIBC(malloc_trim)(0);
        check_zeroes(sizes[i]);
        dirty(sizes[i] / 2 + 1);
        pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            check_zeroes(sizes[i]);
            LIBC(malloc_trim)(0);
            check_zeroes(sizes[i]);
            _exit(0);
        }
        int status;
        require_equal(waitpid(child, &status, 0), child);
        require_equal(status, 0);
    }
}

CHILD_TEST(products_that_overflow)
{
    volatile size_t half = (size_t)1 << 32;
    char *block = LIBC(malloc)(10);
    errno = 0;
    require_no_memory(LIBC(calloc)(half, half));
    require_no_memory(LIBC(calloc)(all_bits, 2));
    require_no_memory(LIBC(calloc)(half + 1, half - 1 + 2));
    require_no_memory(LIBC(reallocarray)(unknown(block), half, half));
    require_no_memory(LIBC(reallocarray)(NULL, all_bits, all_bits));
    block[9] = 1; /* it lives still */
    block = LIBC(reallocarray)(block, 100, 100);
    require(block != NULL && block[9] == 1);
    LIBC(free)(block);
}

CHILD_TEST(huge_requests_fail_at_once)
{
    char *block = LIBC(malloc)(100);
    memset(block, 7, 100);
    for (unsigned round = 0; round < 1000; round++)
        for (unsigned i = 0; i < HUGE_SIZES; i++) {
            size_t size = huge_sizes[i];
            errno = 0;
            require_no_memory(LIBC(malloc)(size));
            require_no_memory(LIBC(calloc)(1, size));
            require_no_memory(LIBC(realloc)(unknown(block), size));
            require_no_memory(LIBC(aligned_alloc)(64, size));
            require_no_memory(operator_new_nothrow(size, &tag));
            require_no_memory(operator_new_aligned_nothrow(size, 64, &tag));
            void *untouched = &tag;
            require_equal(LIBC(posix_memalign)(&untouched, 64, size), ENOMEM);
            require(untouched == &tag);
        }
    for (unsigned i = 0; i < 100; i++)
        require_equal(block[i], 7);
    LIBC(free)(block);
}

CHILD_TEST(errno_is_kept)
{
    static const size_t sizes[] = {0, 10, 600, 20000, 70000, 1000000, 40000000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        errno = 77;
        char *block = LIBC(malloc)(sizes[i]), *other = LIBC(calloc)(1, sizes[i]);
        require(block != NULL && other != NULL);
        block = LIBC(realloc)(block, sizes[i] * 2 + 1);
        require(block != NULL);
        LIBC(malloc_usable_size)(block);
        LIBC(free)(block);
        LIBC(cfree)(other);
        LIBC(malloc_trim)(0);
        require_equal(errno, 77);
    }
}

CHILD_TEST(realloc_as_glibc_does_it)
{
    char *block = LIBC(realloc)(NULL, 50);
    require(block != NULL);
    block = LIBC(realloc)(block, 0); /* frees */
    require(block == NULL);
    block = LIBC(realloc)(NULL, 0); /* makes */
    require(block != NULL);
    LIBC(free)(block);
}

/* Up and down by one byte over every class's edge and beyond the classes. */
CHILD_TEST(realloc_by_one)
{
    size_t most = slow_here() ? 3000 : 70000;
    char *block = LIBC(malloc)(1);
    for (size_t size = 1; size < most; size++) {
        block[size - 1] = (char)(size * 31);
        block = LIBC(realloc)(block, size + 1);
        require(block != NULL);
        require_equal(block[size - 1], (char)(size * 31));
        require_equal(block[0], 31);
        require_equal(block[size / 2], (char)((size / 2 + 1) * 31));
    }
    for (size_t size = most; size > 1; size--) {
        block = LIBC(realloc)(block, size - 1);
        require(block != NULL);
        if (size > 2)
            require_equal(block[size - 3], (char)((size - 2) * 31));
        require_equal(block[0], 31);
    }
    LIBC(free)(block);
}

CHILD_TEST(realloc_of_aligned_blocks)
{
    for (size_t alignment = 32; alignment <= 64 * KIB; alignment *= 2)
        for (size_t size = 1; size < 40000; size = size * 3 + 1) {
            char *block = LIBC(memalign)(alignment, size);
            memset(block, 5, size);
            block = LIBC(realloc)(block, size * 2);
            for (size_t i = 0; i < size; i++)
                require_equal(block[i], 5);
            block = LIBC(realloc)(block, size / 2 + 1);
            for (size_t i = 0; i < size / 2 + 1; i++)
                require_equal(block[i], 5);
            LIBC(free)(block);
        }
}

static void *make_blocks(void *argument)
{
    char **blocks = argument;
    for (unsigned i = 0; i < 200; i++) {
        blocks[i] = LIBC(malloc)(i * 100 + 1);
        memset(blocks[i], (int)i, i * 100 + 1);
    }
    return NULL;
}

CHILD_TEST(realloc_of_another_threads_blocks)
{
    static char *blocks[200];
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, make_blocks, blocks), 0);
    require_equal(pthread_join(thread, NULL), 0);
    for (unsigned i = 0; i < 200; i++) {
        blocks[i] = LIBC(realloc)(blocks[i], i * 150 + 40);
        require(blocks[i] != NULL);
        for (unsigned at = 0; at < i * 100 + 1; at++)
            require_equal((unsigned char)blocks[i][at], i);
        LIBC(free)(blocks[i]);
    }
}

/* An array that grows an element at a time: how often it may move follows from the factor by which
 * the room grows, and so does the work. */
CHILD_TEST(growth_by_elements_is_linear)
{
    SKIP_UNDER_TOOLS();
    enum { ELEMENT = 4096 };
    size_t most = strcmp(SUITE, "malloc") == 0 ? GIB : GIB / 8, moves = 0;
    char *block = LIBC(malloc)(ELEMENT), *last = block;
    for (size_t size = ELEMENT; size < most; size += ELEMENT) {
        *(size_t *)(void *)(block + size - ELEMENT) = size;
        block = LIBC(realloc)(block, size + ELEMENT);
        require(block != NULL);
        moves += block != last;
        last = block;
    }
    for (size_t size = ELEMENT; size < most; size += ELEMENT)
        require_equal(*(size_t *)(void *)(block + size - ELEMENT), size);
    LIBC(free)(block);
    /* 2^18 elements.  Alone in its process the array hardly moves. */
    require_at_most(moves, 64);
}

CHILD_TEST(options)
{
    static const int known[] = {M_MXFAST,         M_TRIM_THRESHOLD, M_TOP_PAD,
                                M_MMAP_THRESHOLD, M_MMAP_MAX,       M_CHECK_ACTION,
                                M_PERTURB,        M_ARENA_TEST,     M_ARENA_MAX};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        require_equal(LIBC(mallopt)(known[i], 0), 1);
    require_equal(LIBC(mallopt)(-100, 0), 0);
    require_equal(LIBC(mallopt)(12345, 1), 0);
}

CHILD_TEST(info_tells_of_the_heap)
{
    enum { BLOCKS = 1000, SIZE = 1000 };
    static char *blocks[BLOCKS];
    struct mallinfo2 before = LIBC(mallinfo2)();
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = LIBC(malloc)(SIZE);
    struct mallinfo2 during = LIBC(mallinfo2)();
    require_at_least(during.uordblks, before.uordblks + BLOCKS * SIZE);
    require_at_most(during.uordblks, before.uordblks + BLOCKS * SIZE * 2);
    require_equal(during.arena, during.uordblks + during.fordblks);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo narrow = LIBC(mallinfo)();
#pragma GCC diagnostic pop
    require_equal(narrow.uordblks, during.uordblks);
    require_equal(narrow.arena, during.arena);
    for (unsigned i = 0; i < BLOCKS; i++)
        LIBC(free)(blocks[i]);
    struct mallinfo2 after = LIBC(mallinfo2)();
    require_at_most(after.uordblks, before.uordblks + 64 * KIB);
    require_at_least(after.fordblks, before.fordblks);
}

CHILD_TEST(info_as_xml)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    kept = LIBC(malloc)(100);
    require_equal(LIBC(malloc_info)(1, stream), EINVAL);
    require_equal(LIBC(malloc_info)(0, stream), 0);
    fclose(stream);
    require(strncmp(text, "<malloc version=\"1\">\n", 21) == 0);
    require(strstr(text, "<total type=\"in_use\" size=\"") != NULL);
    require(strstr(text, "to=\"112\"") != NULL);
    require(length > 10 && strcmp(text + length - 10, "</malloc>\n") == 0);
    free(text); /* of whichever malloc the C library uses */
}

START_TEST(stats_as_text)
{
    struct child_end end;
    run_child((void (*)(void))LIBC(malloc_stats), &end);
    ck_assert_int_eq(end.status, 0);
    ck_assert(strstr(end.text, "in use bytes") != NULL);
}
END_TEST

CHILD_TEST(trim_gives_back)
{
    SKIP_UNDER_TOOLS();
    enum { BLOCKS = 40 };
    char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = LIBC(malloc)(MIB);
        memset(blocks[i], 1, MIB);
    }
    size_t full = status_bytes("VmRSS");
    for (unsigned i = 0; i < BLOCKS; i++)
        LIBC(free)(blocks[i]);
    require_equal(LIBC(malloc_trim)(0), 1);
    require_at_most(status_bytes("VmRSS"), full - BLOCKS / 2 * MIB);
    LIBC(malloc_trim)(0); /* what reading that took */
    require_equal(LIBC(malloc_trim)(0), 0);
}

CHILD_TEST(operators)
{
    for (size_t size = 0; size < 40000; size = size * 2 + 1) {
        char *block = operator_new(size), *nothrow = operator_new_nothrow(size, &tag);
        char *aligned = operator_new_aligned(size, 256);
        require(block != NULL && nothrow != NULL && aligned != NULL);
        require_equal((uintptr_t)aligned % 256, 0);
        memset(block, 1, size);
        memset(nothrow, 2, size);
        memset(aligned, 3, size);
        operator_delete(block);
        operator_delete(nothrow);
        operator_delete_sized_aligned(aligned, size, 256);
    }
}

int main(int count, char **words)
{
    (void)count;
    if (strstr(words[0], "malloc_unit") != NULL && (SANITIZED || RUNNING_ON_VALGRIND)) {
        puts("skipped: sanitizers and Valgrind take malloc for themselves");
        return 77;
    }
    Suite *suite = suite_create(SUITE);
    TCase *tcase = only_case(suite);
    tcase_add_test(tcase, blocks_of_0_bytes_differ);
    tcase_add_test(tcase, every_block_is_aligned);
    tcase_add_test(tcase, alignments_up_to_1_gib);
    tcase_add_test(tcase, wrong_alignments);
    tcase_add_test(tcase, whole_pages);
    tcase_add_test(tcase, all_that_is_usable_can_be_written);
    tcase_add_test(tcase, calloc_gives_zeroes);
    tcase_add_test(tcase, products_that_overflow);
    tcase_add_test(tcase, huge_requests_fail_at_once);
    tcase_add_test(tcase, errno_is_kept);
    tcase_add_test(tcase, realloc_as_glibc_does_it);
    tcase_add_test(tcase, realloc_by_one);
    tcase_add_test(tcase, realloc_of_aligned_blocks);
    tcase_add_test(tcase, realloc_of_another_threads_blocks);
    tcase_add_test(tcase, growth_by_elements_is_linear);
    tcase_add_test(tcase, options);
    tcase_add_test(tcase, info_tells_of_the_heap);
    tcase_add_test(tcase, info_as_xml);
    tcase_add_test(tcase, stats_as_text);
    tcase_add_test(tcase, trim_gives_back);
    tcase_add_test(tcase, operators);
    return run_suite(suite);
}
