/* tests/check_scratch.c - scratch and slate_thread_idle: what lives when, what a thread keeps, what
 * an idle thread holds, system calls.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "scratch.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SLATE_NO_INLINE
#include <slate.h>

#include "check_support.h"

#if defined(SLATE_TRACK_ADDRESS)
#define POISONED(address) (__asan_address_is_poisoned(address) != 0)
#else
#define POISONED(address) ((void)(address), true)
#endif

static size_t heap_in_use(void)
{
    struct slate_stats stats;
    require_equal(slate_stats(&stats, sizeof stats), 0);
    return stats.in_use + stats.own_mappings;
}

static void begin(void) { require_equal(slate_scratch_begin(), 0); }

static char *take(size_t size)
{
    errno = 5;
    char *block = slate_scratch_alloc(size);
    require(block != NULL);
    require_equal(errno, 5);
    require_equal((uintptr_t)block % 16, 0);
    memset(block, 0x5a, size);
    return block;
}

CHILD_TEST(nested_uses)
{
    enum { DEPTH = 50 };
    char *blocks[DEPTH];
    size_t sizes[DEPTH];
    struct random random = {seed_of_run()};
    for (unsigned round = 0; round < 20; round++) {
        for (size_t i = 0; i < DEPTH; i++) {
            begin();
            sizes[i] = 1 + skewed(&random, i % 7 == 0 ? 18 : 12);
            blocks[i] = take(sizes[i]);
            fill(blocks[i], sizes[i], i);
            for (size_t j = 0; j < i; j++)
                require(holds(blocks[j], sizes[j], sizes[j], j));
        }
        for (size_t i = DEPTH; i-- > 0;) {
            require(holds(blocks[i], sizes[i], sizes[i], i));
            slate_scratch_end();
            require(POISONED(blocks[i]));
            if (i != 0) {
                begin();
                take(100000);
                slate_scratch_end();
            }
        }
        require_at_most(slatei_scratch_held(), 64 * KIB);
    }
    slate_thread_idle();
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(outside_of_a_use)
{
    errno = 0;
    require(slate_scratch_alloc(1) == NULL);
    require_equal(errno, EINVAL);
    slate_scratch_end();
    require_equal(slate_thread_idle(), 0);
    begin();
    take(0);
    slate_scratch_end();
    slate_scratch_end();
    errno = 0;
    require(slate_scratch_alloc(1) == NULL);
    require_equal(errno, EINVAL);
    volatile size_t huge = SIZE_MAX - 5;
    begin();
    errno = 0;
    require(slate_scratch_alloc(huge) == NULL);
    require_equal(errno, ENOMEM);
    take(10);
    slate_scratch_end();
}

static void keeps(const char *setting, size_t most)
{
    require_equal(slate_tune("SLATE_SCRATCH", setting), 0);
    for (size_t size = 1; size < 8 * MIB; size = size * 3) {
        begin();
        for (unsigned i = 0; i < 5; i++)
            take(size);
        require_at_least(slatei_scratch_held(), 5 * size);
        begin();
        take(1000);
        slate_scratch_end();
        slate_scratch_end();
        require_at_most(slatei_scratch_held(), most);
    }
    slate_thread_idle();
    require_equal(slatei_scratch_held(), 0);
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(keeps_at_most_64_kib) { keeps("64K", 64 * KIB); }
CHILD_TEST(keeps_nothing) { keeps("0", 512); }
CHILD_TEST(keeps_a_mebibyte) { keeps("1M", MIB); }

/* What fits in what is kept is not taken anew. */
CHILD_TEST(kept_scratch_serves)
{
    begin();
    char *first = take(40 * KIB);
    slate_scratch_end();
    size_t held = slatei_scratch_held();
    require_at_least(held, 32 * KIB);
    for (unsigned i = 0; i < 1000; i++) {
        begin();
        require(take(i * 13) == first || i == 0);
        slate_scratch_end();
        require_equal(slatei_scratch_held(), held);
    }
}

/* ---- slate_scratch_copy */

static ptrdiff_t produce(void *argument, void *buffer, size_t room)
{
    ptrdiff_t size = *(ptrdiff_t *)argument;
    require_equal(room, 100000);
    if (size < 0) {
        errno = EIO;
        return size;
    }
    begin(); /* it may use scratch itself */
    take(70000);
    slate_scratch_end();
    fill(buffer, (size_t)size, 8);
    return size;
}

CHILD_TEST(copies)
{
    for (ptrdiff_t made = -1; made <= 100000; made = made * 5 + 5) {
        size_t size = 77;
        errno = 0;
        char *block = slate_scratch_copy(100000, produce, &made, &size);
        if (made < 0) {
            require(block == NULL);
            require_equal(errno, EIO);
            require_equal(size, 77);
            made = 0;
            continue;
        }
        require(block != NULL && holds(block, size, size, 8));
        require_equal(size, made);
        require_at_most(slate_usable_size(block), size + size / 4 + 4096);
        slate_free(block);
    }
    slate_thread_idle();
    require_equal(heap_in_use(), 0);
}

/* ---- idle */

/* From here on every system call but those that end the process and write kills it. */
static bool forbid_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

CHILD_TEST(no_system_call_with_nothing_to_give)
{
    SKIP_UNDER_TOOLS();
    void *volatile blocks[200];
    for (unsigned round = 0; round < 3; round++) { /* as a thread that has worked before */
        begin();
        take(600 * KIB);
        take(20);
        for (unsigned i = 0; i < 200; i++)
            blocks[i] = slate_alloc(i * 40);
        slate_scratch_end();
        for (unsigned i = 0; i < 200; i++)
            slate_free(blocks[i]);
        slate_thread_idle();
    }
    SKIP_IF(!forbid_system_calls(), "this kernel has no filters of system calls");
    for (unsigned i = 0; i < 1000; i++)
        require_equal(slate_thread_idle(), 0);
    /* Nor with scratch used and given back, when others left so much before. */
    for (unsigned i = 0; i < 1000; i++) {
        begin();
        require(slate_scratch_alloc(600 * KIB - i * 500) != NULL);
        void *block = slate_alloc(3000);
        slate_free(block);
        slate_scratch_end();
        slate_thread_idle();
    }
}

CHILD_TEST(much_goes_back)
{
    SKIP_UNDER_TOOLS();
    for (unsigned policy = 0; policy < 2; policy++) {
        size_t before = status_bytes("VmRSS");
        begin();
        for (unsigned i = 0; i < 64; i++)
            take(MIB);
        require_at_least(status_bytes("VmRSS"), before + 64 * MIB);
        slate_scratch_end();
        size_t bytes = slate_thread_idle();
        require_at_least(bytes, 50 * MIB);
        require_at_most(status_bytes("VmRSS"), before + SLATEI_IDLE_KEEP + MIB);
    }
    /* Small blocks as well. */
    enum { COUNT = 300000 };
    static void *blocks[COUNT];
    size_t before = status_bytes("VmRSS");
    for (unsigned i = 0; i < COUNT; i++)
        memset(blocks[i] = slate_alloc(100), 1, 100);
    for (unsigned i = 0; i < COUNT; i++)
        slate_free(blocks[i]);
    slate_thread_idle();
    require_at_most(status_bytes("VmRSS"), before + SLATEI_IDLE_KEEP + 4 * MIB);
}

/* Rounds of work and idleness take nothing new: no fault, no growth. */
CHILD_TEST(rounds_take_nothing_new)
{
    SKIP_UNDER_TOOLS();
    size_t faults = 0;
    struct random random = {seed_of_run()};
    for (unsigned i = 0; i < 3000; i++) {
        if (i == 500)
            faults = minor_faults();
        begin();
        take(8 * KIB + below(&random, MIB - 8 * KIB));
        slate_scratch_end();
        slate_thread_idle();
        require_equal(slatei_scratch_held(), 0);
    }
    require_at_most(minor_faults() - faults, 100);
}

CHILD_TEST(idle_inside_a_use)
{
    begin();
    char *block = take(5000);
    fill(block, 5000, 4);
    begin();
    take(900 * KIB);
    slate_scratch_end();
    slate_thread_idle();
    require(holds(block, 5000, 5000, 4));
    require_at_most(slatei_scratch_held(), 70 * KIB);
    begin();
    take(100);
    slate_scratch_end();
    slate_scratch_end();
    slate_thread_idle();
    require_equal(heap_in_use(), 0);
}

/* ---- threads */

enum { WORKERS = 100, ROUNDS = 20 };

static pthread_barrier_t meeting;

static void *work(void *argument)
{
    struct random random = {(uint64_t)(uintptr_t)argument};
    for (unsigned i = 0; i < ROUNDS; i++) {
        begin();
        size_t size = 8 * KIB + below(&random, slow_here() ? 32 * KIB : 1016 * KIB);
        char *block = take(size);
        fill(block, 1000, i);
        begin();
        take(size / 8);
        slate_scratch_end();
        require(holds(block, 1000, 1000, i));
        slate_scratch_end();
        slate_thread_idle();
        require_at_most(slatei_scratch_held(), 100);
    }
    pthread_barrier_wait(&meeting); /* all are idle */
    pthread_barrier_wait(&meeting);
    if ((uintptr_t)argument % 3 == 0) {
        begin(); /* a thread may end in the midst of it */
        take(100000);
    }
    return NULL;
}

CHILD_TEST(idle_workers_hold_nothing)
{
    pthread_t threads[WORKERS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * KIB);
    pthread_barrier_init(&meeting, NULL, WORKERS + 1);
    for (uintptr_t i = 0; i < WORKERS; i++)
        require_equal(pthread_create(&threads[i], &attributes, work, (void *)i), 0);
    pthread_barrier_wait(&meeting);
    require_at_most(heap_in_use(), 100 * WORKERS);
    pthread_barrier_wait(&meeting);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    slate_purge();
    require_equal(heap_in_use(), 0);
}

CHILD_TEST(after_a_fork)
{
    begin();
    char *block = take(3000);
    fill(block, 3000, 9);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        require(holds(block, 3000, 3000, 9));
        begin();
        take(100000);
        slate_scratch_end();
        slate_scratch_end();
        slate_thread_idle();
        _exit(slatei_scratch_held() == 0 ? 0 : 1);
    }
    int status;
    require_equal(waitpid(child, &status, 0), child);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    slate_scratch_end();
}

int main(void)
{
    Suite *suite = suite_create("scratch");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, nested_uses);
    tcase_add_test(tests, outside_of_a_use);
    tcase_add_test(tests, keeps_at_most_64_kib);
    tcase_add_test(tests, keeps_nothing);
    tcase_add_test(tests, keeps_a_mebibyte);
    tcase_add_test(tests, kept_scratch_serves);
    tcase_add_test(tests, copies);
    tcase_add_test(tests, no_system_call_with_nothing_to_give);
    tcase_add_test(tests, much_goes_back);
    tcase_add_test(tests, rounds_take_nothing_new);
    tcase_add_test(tests, idle_inside_a_use);
    tcase_add_test(tests, idle_workers_hold_nothing);
    tcase_add_test(tests, after_a_fork);
    return run_suite(suite);
}
