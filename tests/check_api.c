/* tests/check_api.c - the public functions: sizes, alignment, errors, contents, and the two forms
 * of each inline function.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include <slate.h>

#include <pthread.h>

#include "check_support.h"

#define ODD_ERRNO 4711

/* The real symbols, whatever the compiler inlines. */
static struct {
    void *(*alloc)(size_t);
    void *(*zalloc)(size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void (*free_sized)(void *, size_t);
    size_t (*usable_size)(const void *);
} volatile real = {slate_alloc, slate_zalloc,     slate_realloc,
                   slate_free,  slate_free_sized, slate_usable_size};

static const char *const policies[] = {"never", "always", "switch", "shared"};
static const char *policy;

static void use_policy(void)
{
    if (policy != NULL)
        require_equal(slate_tune("SLATE_POLICY", policy), 0);
}

static void each_policy(void (*body)(void))
{
    for (unsigned i = 0; i < 4; i++) {
        struct child_end end;
        policy = policies[i];
        run_child(body, &end);
        ck_assert_msg(end.status == 0, "policy %s: status %d: %s", policy, end.status, end.text);
    }
    policy = NULL;
}

/* ---- sizes */

static void every_size(void)
{
    use_policy();
    errno = ODD_ERRNO;
    for (size_t size = 0; size <= 64 * KIB; size += slow_here() ? 127 : 1) {
        unsigned char *block = slate_alloc(size);
        require(block != NULL);
        require_equal((uintptr_t)block % 16, 0);
        size_t usable = slate_usable_size(block);
        require_at_least(usable, size);
        require_at_least(usable, 1);
        if (size <= SLATE_CLASS_MAX)
            require_equal(usable, slate_class_size_(slate_class_of_(size)));
        else
            require_at_most(usable, size + 4096);
        memset(block, 0x77, usable); /* all of it may be used */
        require_equal(slate_usable_size(block), usable);
        unsigned char *zeroed = slate_zalloc(size);
        require(zeroed != NULL && zeroed != block);
        require(all_zero(zeroed, size));
        memset(zeroed, 0x88, size);
        require(usable == 0 || block[usable - 1] == 0x77);
        if (size % 2 != 0)
            slate_free_sized(block, size);
        else
            slate_free(block);
        slate_free_sized(zeroed, usable);
    }
    require_equal(errno, ODD_ERRNO);
}

START_TEST(sizes) { each_policy(every_size); }
END_TEST

/* Class sizes are as class.h says. */
START_TEST(class_table)
{
    for (unsigned i = 0; i < SLATE_CLASSES; i++) {
        size_t size = slate_class_size_(i);
        ck_assert_uint_eq(slate_class_of_(size), i);
        ck_assert_uint_eq(size % 16, 0);
        if (i + 1 < SLATE_CLASSES)
            ck_assert_uint_eq(slate_class_of_(size + 1), i + 1);
        /* At most a quarter is lost by rounding up, beyond the first few. */
        if (i >= 4)
            ck_assert_uint_le(size, (slate_class_size_(i - 1) + 1) * 5 / 4 + 16);
    }
    ck_assert_uint_eq(slate_class_of_(0), 0);
    ck_assert_uint_eq(slate_class_of_(1), 0);
    ck_assert_uint_eq(slate_class_size_(SLATE_STEP_CLASSES - 1), SLATE_STEP_MAX);
    ck_assert_uint_eq(slate_class_size_(SLATE_CLASSES - 1), SLATE_CLASS_MAX);
}
END_TEST

/* Blocks of size 0 are blocks like others. */
CHILD_TEST(size_zero)
{
    void *block[100];
    for (unsigned i = 0; i < 100; i++) {
        block[i] = i % 2 != 0 ? slate_alloc(0) : slate_zalloc(0);
        require(block[i] != NULL);
        for (unsigned j = 0; j < i; j++)
            require(block[i] != block[j]);
    }
    for (unsigned i = 0; i < 100; i++) {
        block[i] = slate_realloc(block[i], 0);
        require(block[i] != NULL); /* it does not free */
    }
    static const volatile size_t none = 0; /* what the compiler knows, it warns of */
    void *fresh = slate_realloc(NULL, none);
    require(fresh != NULL);
    for (unsigned i = 0; i < 100; i++)
        require(fresh != block[i]);
    slate_free(fresh);
    for (unsigned i = 0; i < 100; i++)
        slate_free(block[i]);
}

CHILD_TEST(nothing)
{
    errno = ODD_ERRNO;
    slate_free(NULL);
    slate_free_sized(NULL, 0);
    real.free(NULL);
    real.free_sized(NULL, 100);
    require_equal(slate_usable_size(NULL), 0);
    require_equal(real.usable_size(NULL), 0);
    require_equal(slate_purge(), 0);
    void *block = slate_realloc(NULL, 100);
    require(block != NULL);
    require_at_least(slate_usable_size(block), 100);
    slate_free(NULL);
    require_equal(slate_usable_size(NULL), 0);
    slate_free(block);
    slate_purge();
    require_equal(errno, ODD_ERRNO);
}

/* ---- alignment */

static void every_alignment(void)
{
    use_policy();
    errno = ODD_ERRNO;
    static const size_t sizes[] = {0,    1,    16,    48,    100,    512,    1000,
                                   4096, 5000, 16384, 16385, 100000, 3 * MIB};
    size_t count = sizeof sizes / sizeof *sizes - slow_here();
    /* Valgrind goes through all memory that becomes usable. */
    size_t most = RUNNING_ON_VALGRIND ? 4 * MIB : GIB;
    for (size_t alignment = 1; alignment <= most; alignment *= slow_here() ? 8 : 2) {
        unsigned char *block[sizeof sizes / sizeof *sizes];
        for (size_t i = 0; i < count; i++) {
            block[i] = slate_aligned_alloc(alignment, sizes[i]);
            require(block[i] != NULL);
            require_equal((uintptr_t)block[i] % alignment, 0);
            require_equal((uintptr_t)block[i] % 16, 0);
            require_at_least(slate_usable_size(block[i]), sizes[i]);
            memset(block[i], (int)i + 1, sizes[i]);
        }
        for (size_t i = 0; i < count; i++) {
            require(sizes[i] == 0 || block[i][0] == i + 1);
            require(sizes[i] == 0 || block[i][sizes[i] - 1] == i + 1);
            if (i % 3 == 0) {
                unsigned char *grown = slate_realloc(block[i], sizes[i] * 2 + 1);
                require(grown != NULL);
                for (size_t j = 0; j < sizes[i]; j += 97)
                    require_equal(grown[j], i + 1);
                block[i] = grown;
            }
            slate_free(block[i]);
        }
    }
    require_equal(errno, ODD_ERRNO);
}

START_TEST(alignments) { each_policy(every_alignment); }
END_TEST

/* Many of one alignment, none overlapping: a class is used where one is aligned. */
CHILD_TEST(aligned_blocks_do_not_overlap)
{
    enum { COUNT = 300 };
    for (size_t alignment = 32; alignment <= 8192; alignment *= 2)
        for (size_t size = 1; size <= 20000; size = size * 3 + 7) {
            static unsigned char *block[COUNT];
            for (unsigned i = 0; i < COUNT; i++) {
                require((block[i] = slate_aligned_alloc(alignment, size)) != NULL);
                require_equal((uintptr_t)block[i] % alignment, 0);
                memset(block[i], (int)(i & 0xff), size);
            }
            for (unsigned i = 0; i < COUNT; i++) {
                require_equal(block[i][0], i & 0xff);
                require(memcmp(block[i], block[i] + 1, size - 1) == 0);
                slate_free(block[i]);
            }
        }
}

CHILD_TEST(bad_alignments)
{
    static const volatile size_t wrong[] = {
        0, 3, 5, 24, 4097, GIB + 1, 2 * GIB, SIZE_MAX, (size_t)1 << 63, 48};
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            errno = 0;
            require(slate_aligned_alloc(wrong[i], 100) == NULL);
            require_equal(errno, EINVAL);
        }
        slate_free(slate_aligned_alloc(64, 100)); /* once before and once after the first use */
    }
}

/* ---- out of memory */

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        errno = 0;                                                                                 \
        require((call) == NULL);                                                                   \
        require_equal(errno, ENOMEM);                                                              \
    } while (0)

static void refuse_sizes(void)
{
    use_policy();
    static const volatile size_t wrong[] = {
        PTRDIFF_MAX,     (size_t)PTRDIFF_MAX + 1, SIZE_MAX,
        SIZE_MAX - 15,   SIZE_MAX - 16,           SIZE_MAX - 4095,
        SIZE_MAX - 4096, PTRDIFF_MAX - 4096,      SIZE_MAX / 2 + SIZE_MAX / 4,
        (size_t)1 << 62};
    for (unsigned round = 0; round < 2; round++) {
        unsigned char *small = slate_alloc(100), *large = slate_alloc(200000);
        require(small != NULL && large != NULL);
        memset(small, 5, 100);
        memset(large, 6, 200000);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            size_t size = wrong[i];
            REFUSED(slate_alloc(size));
            REFUSED(slate_zalloc(size));
            REFUSED(slate_realloc(NULL, size));
            REFUSED(slate_realloc(small, size));
            REFUSED(slate_realloc(large, size));
            for (size_t alignment = 1; alignment <= GIB; alignment *= 32)
                REFUSED(slate_aligned_alloc(alignment, size));
            REFUSED(real.alloc(size));
            REFUSED(real.zalloc(size));
            REFUSED(real.realloc(small, size));
            REFUSED(real.realloc(large, size));
        }
        /* The heap is as it was. */
        for (size_t i = 0; i < 100; i++)
            require_equal(small[i], 5);
        for (size_t i = 0; i < 200000; i++)
            require_equal(large[i], 6);
        errno = ODD_ERRNO;
        slate_free(small);
        slate_free(large);
        require_equal(errno, ODD_ERRNO);
    }
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_equal(stats.in_use, 0);
    require_equal(stats.own_mappings, 0);
}

START_TEST(sizes_too_large) { each_policy(refuse_sizes); }
END_TEST

/* The system gives no more: NULL, and everything else goes on. */
static void exhaust(void)
{
    use_policy();
    unsigned char *kept = slate_alloc(3000), *large = slate_alloc(300000);
    require(kept != NULL && large != NULL);
    fill(kept, 3000, 1);
    fill(large, 300000, 2);
    (void)status_bytes("VmData");
    limit_growth(RLIMIT_DATA, 48 * MIB);
    struct slate_stats before, after;
    void *newest = NULL;
    size_t blocks = 0;
    for (unsigned round = 0; round < 2; round++) {
        for (size_t size = 4 * MIB; size >= 16; size /= 4) {
            void **block;
            errno = 0;
            while ((block = slate_alloc(size)) != NULL) {
                *block = newest;
                newest = block;
                blocks++;
            }
            require_equal(errno, ENOMEM);
        }
        require_equal(slate_stats(&before, sizeof before), 0);
        REFUSED(slate_realloc(large, 30 * MIB));
        REFUSED(slate_realloc(kept, 2 * MIB));
        REFUSED(slate_zalloc(2 * MIB));
        REFUSED(slate_aligned_alloc(MIB, 2 * MIB));
        require_equal(slate_stats(&after, sizeof after), 0);
        require_equal(before.in_use, after.in_use);
        require(holds(kept, 3000, 3000, 1));
        require(holds(large, 300000, 300000, 2));
        require_at_least(blocks, 10);
        while (newest != NULL) {
            void *next = *(void **)newest;
            slate_free(newest);
            newest = next;
        }
        slate_purge();
    }
    require((large = slate_realloc(large, 600000)) != NULL);
    require(holds(large, 300000, 300000, 2));
    slate_free(large);
    slate_free(kept);
}

START_TEST(out_of_memory)
{
    SKIP_UNDER_TOOLS();
    each_policy(exhaust);
}
END_TEST

/* ---- realloc */

static void resize_all(void)
{
    use_policy();
    static const size_t sizes[] = {
        0,     1,     15,    16,    17,    48,     49,      100,           496,     511,
        512,   513,   640,   641,   1024,  4095,   4096,    4097,          8192,    16383,
        16384, 16385, 20000, 65536, 65537, 200000, 1 << 20, (1 << 20) + 1, 9 << 20, (9 << 20) + 5};
    size_t count = sizeof sizes / sizeof *sizes;
    if (slow_here())
        count -= 6;
    errno = ODD_ERRNO;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            size_t from = sizes[i], to = sizes[j], kept = from < to ? from : to;
            unsigned char *block = (i + j) % 2 != 0 ? slate_alloc(from) : real.alloc(from);
            require(block != NULL);
            fill(block, from, i * count + j);
            block = (i + j) % 3 != 0 ? slate_realloc(block, to) : real.realloc(block, to);
            require(block != NULL);
            require_equal((uintptr_t)block % 16, 0);
            require_at_least(slate_usable_size(block), to);
            require(holds(block, from, kept, i * count + j));
            memset(block, 0x99, to);
            slate_free(block);
        }
    require_equal(errno, ODD_ERRNO);
}

START_TEST(realloc_keeps_contents) { each_policy(resize_all); }
END_TEST

/* As a program does it: many at once, growing and shrinking, with other threads' blocks among
 * them. */
enum { MANY = 500 };
static unsigned char *many[MANY];
static size_t many_size[MANY];

static void *make_many(void *unused)
{
    for (unsigned i = 0; i < MANY; i++) {
        many_size[i] = i * 3 % 1000;
        require((many[i] = slate_alloc(many_size[i])) != NULL);
        fill(many[i], many_size[i], i);
    }
    return unused;
}

CHILD_TEST(realloc_of_foreign_blocks)
{
    pthread_t thread;
    require_equal(pthread_create(&thread, NULL, make_many, NULL), 0);
    pthread_join(thread, NULL);
    struct random random = {seed_of_run()};
    for (unsigned step = 0; step < (slow_here() ? 3000u : 60000u); step++) {
        size_t k = below(&random, MANY), old = many_size[k];
        size_t size = below(&random, 3) != 0 ? skewed(&random, 10) : skewed(&random, 17);
        require((many[k] = slate_realloc(many[k], size)) != NULL);
        require(holds(many[k], old, old < size ? old : size, k));
        many_size[k] = size;
        fill(many[k], size, k);
    }
    for (unsigned i = 0; i < MANY; i++) {
        require(holds(many[i], many_size[i], many_size[i], i));
        slate_free(many[i]);
    }
}

/* ---- zalloc */

/* After dirty blocks of the size were freed, whichever way the memory comes back. */
static void zero_after_dirt(void)
{
    use_policy();
    static void *block[3000];
    for (unsigned i = 0; i <= SLATE_CLASSES + 5; i++) {
        size_t size = i < SLATE_CLASSES ? slate_class_size_(i) - i % 3
                                        : (SLATE_CLASS_MAX + 1) << (2 * (i - SLATE_CLASSES));
        size_t count = 4 * MIB / size / (slow_here() ? 256 : 1) + 2;
        if (count > 3000)
            count = 3000;
        for (unsigned round = 0; round < 4; round++) {
            for (size_t j = 0; j < count; j++) {
                block[j] = round % 2 != 0 ? real.zalloc(size) : slate_zalloc(size);
                require(block[j] != NULL);
                require(all_zero(block[j], size));
                memset(block[j], 0xdd, slate_usable_size(block[j]));
            }
            for (size_t j = 0; j < count; j++)
                slate_free(block[j]);
            if (round == 1)
                slate_purge();
            if (round == 2) { /* dirt from another size in the same memory */
                void *other = slate_alloc(count * size / 2 + 20000);
                require(other != NULL);
                memset(other, 0xcc, count * size / 2 + 20000);
                slate_free(other);
            }
        }
    }
}

START_TEST(zalloc_is_zero) { each_policy(zero_after_dirt); }
END_TEST

/* ---- inline and real */

CHILD_TEST(symbols_have_addresses)
{
    void *(*const one)(size_t) = slate_alloc, *(*const two)(size_t) = slate_zalloc;
    require(one != NULL && one != two);
    require(one == real.alloc);
    require(real.free != NULL && real.usable_size != NULL && real.realloc != NULL);
    require(strcmp(slate_version(), SLATE_VERSION) == 0);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", SLATE_VERSION_MAJOR, SLATE_VERSION_MINOR,
             SLATE_VERSION_PATCH);
    require(strcmp(slate_version(), version) == 0);
}

/* Both forms work on the same blocks, in any mixture. */
CHILD_TEST(forms_agree)
{
    struct random random = {seed_of_run()};
    enum { SLOTS = 1000 };
    static unsigned char *slot[SLOTS];
    static size_t size[SLOTS];
    for (unsigned step = 0; step < (slow_here() ? 10000u : 200000u); step++) {
        size_t k = below(&random, SLOTS), wanted = skewed(&random, 12);
        bool inlined = below(&random, 2) != 0;
        if (slot[k] != NULL) {
            require(holds(slot[k], size[k] < 64 ? size[k] : 64, size[k] < 64 ? size[k] : 64, k));
            require_equal(slate_usable_size(slot[k]), real.usable_size(slot[k]));
            require_equal(slate_usable_size_inline_(slot[k]), slate_usable_size_slow_(slot[k]));
        }
        switch (below(&random, 4)) {
        case 0:
            if (inlined)
                slate_free_inline_(slot[k]);
            else
                real.free(slot[k]);
            slot[k] = NULL;
            break;
        case 1:
            if (inlined)
                slate_free_sized(slot[k], size[k]);
            else
                real.free_sized(slot[k], size[k]);
            slot[k] = inlined ? slate_zalloc_inline_(wanted) : real.zalloc(wanted);
            require(slot[k] != NULL && all_zero(slot[k], wanted));
            break;
        case 2:
            slot[k] = inlined ? slate_realloc(slot[k], wanted) : real.realloc(slot[k], wanted);
            require(slot[k] != NULL);
            break;
        default:
            if (inlined)
                slate_free(slot[k]);
            else
                real.free(slot[k]);
            slot[k] = inlined ? slate_alloc_inline_(wanted) : real.alloc(wanted);
            require(slot[k] != NULL);
            break;
        }
        if (slot[k] != NULL) {
            size[k] = wanted;
            fill(slot[k], wanted < 64 ? wanted : 64, k);
        }
    }
    for (unsigned k = 0; k < SLOTS; k++)
        real.free(slot[k]);
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    require_equal(stats.in_use, 0);
}

/* The newest freed block is the next one of its class, through either form. */
CHILD_TEST(newest_first)
{
    for (size_t size = 1; size <= 4096; size = size * 2 + 1) {
        void *a = slate_alloc(size), *b = real.alloc(size);
        require(a != NULL && b != NULL);
        slate_free(a);
        real.free(b);
        void *first = real.alloc(size), *second = slate_alloc(size);
        require_equal(first, b);
        require_equal(second, a);
        slate_free(first);
        slate_free(second);
    }
}

int main(void)
{
    Suite *suite = suite_create("api");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, sizes);
    tcase_add_test(tests, class_table);
    tcase_add_test(tests, size_zero);
    tcase_add_test(tests, nothing);
    tcase_add_test(tests, alignments);
    tcase_add_test(tests, aligned_blocks_do_not_overlap);
    tcase_add_test(tests, bad_alignments);
    tcase_add_test(tests, sizes_too_large);
    tcase_add_test(tests, out_of_memory);
    tcase_add_test(tests, realloc_keeps_contents);
    tcase_add_test(tests, realloc_of_foreign_blocks);
    tcase_add_test(tests, zalloc_is_zero);
    tcase_add_test(tests, symbols_have_addresses);
    tcase_add_test(tests, forms_agree);
    tcase_add_test(tests, newest_first);
    return run_suite(suite);
}
