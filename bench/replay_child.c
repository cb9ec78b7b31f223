/* replay_child.c - the process that replays one decoded trace once on one allocator and measures
 * itself.
 *
 * SPDX-License-Identifier: MIT
 *
 * Nothing here allocates through the measured allocator: all memory is mapped, and touched before
 * the baseline is taken.
 */
#define _GNU_SOURCE 1
#include "config.h"

#include "replay_child.h"

#include "child.h"
#include "commands.h"
#include "launch.h"

#include <slate.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    STACK_BYTES = 256 << 10,
    STACK_TOUCHED_BYTES = 16 << 10,
    STACKS_TOUCHED_MAX = 4096,
    FLOOR_BUFFERS_MAX = 64
};

/* A thread's way through its life; only replay_join_thread goes from CREATED on. */
enum { NOT_CREATED, CREATED, BEING_JOINED, JOINED };

struct thread_state {
    pthread_t handle;
    int state;
};

struct replay_process {
    struct replay_result *result;
    const struct replay_header *header;
    const struct replay_thread_entry *entries;
    struct replay_thread *threads;
    struct thread_state *states;
    unsigned char *stacks;
    void (*replay)(struct replay_thread *);
    uint32_t joined; /* this many of the order of ends are known to have been joined */
};

static _Noreturn void fail_setup(struct replay_result *result)
{
    result->error = errno;
    result->status = REPLAY_SETUP_FAILED;
    _exit(1);
}

_Noreturn void replay_fail(struct replay_thread *thread, int status, const uint64_t *at,
                           const void *block, size_t size)
{
    static int failing;
    struct replay_result *result = thread->process->result;
    if (__atomic_exchange_n(&failing, 1, __ATOMIC_RELAXED))
        for (;;)
            pause(); /* another thread is about to end the process */
    result->word = (uint64_t)(at - thread->words);
    result->address = (uintptr_t)block;
    result->size = size;
    result->status = status;
    _exit(1);
}

void replay_wait(void) { sched_yield(); }

/* ---- threads ---- */

static void *run_thread(void *argument)
{
    struct replay_thread *thread = argument;
    thread->process->replay(thread);
    return NULL;
}

static void join_thread(struct replay_process *process, uint32_t index)
{
    struct thread_state *thread = &process->states[index];
    for (;;) {
        int expected = CREATED;
        if (__atomic_compare_exchange_n(&thread->state, &expected, BEING_JOINED, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            break;
        if (expected == JOINED)
            return;
        replay_wait();
    }
    pthread_join(thread->handle, NULL);
    __atomic_store_n(&thread->state, JOINED, __ATOMIC_RELEASE);
}

/* Waits for the first `count` threads of the order of ends. */
static void join_ended(struct replay_process *process, uint32_t count)
{
    uint32_t joined = __atomic_load_n(&process->joined, __ATOMIC_RELAXED);
    for (uint32_t i = joined; i < count; i++)
        join_thread(process, process->entries[i].ended_order);
    while (joined < count && !__atomic_compare_exchange_n(&process->joined, &joined, count, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void replay_start_thread(struct replay_thread *starter, uint32_t index)
{
    struct replay_process *process = starter->process;
    join_ended(process, process->entries[index].ended_before);
    struct thread_state *thread = &process->states[index];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, process->stacks + (size_t)index * STACK_BYTES, STACK_BYTES);
    int error = pthread_create(&thread->handle, &attributes, run_thread, &process->threads[index]);
    if (error) {
        errno = error;
        fail_setup(process->result);
    }
    pthread_attr_destroy(&attributes);
    __atomic_store_n(&thread->state, CREATED, __ATOMIC_RELEASE);
}

/* ---- what the kernel counts ---- */

static double seconds(struct timeval from, struct timeval to)
{
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_usec - from.tv_usec) * 1e-6;
}

static void measure(struct replay_process *process)
{
    struct replay_result *result = process->result;
    struct rusage before, after;
    struct timespec start, end;
    child_read_sizes(); /* touches what reading needs */
    child_reset_peak();
    uint64_t huge_before_kb = child_read_anonymous_huge_kb();
    struct child_sizes baseline = child_read_sizes();
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &start);
    process->replay(&process->threads[0]);
    for (uint32_t i = 0; i + 1 < process->header->thread_count; i++)
        if (process->entries[i].ended_order)
            join_thread(process, process->entries[i].ended_order);
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_SELF, &after);
    struct child_sizes sizes = child_read_sizes();
    uint64_t huge_kb = child_read_anonymous_huge_kb();

    result->wall_seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    result->user_seconds = seconds(before.ru_utime, after.ru_utime);
    result->system_seconds = seconds(before.ru_stime, after.ru_stime);
    result->resident_kb =
        sizes.peak_kb > baseline.resident_kb ? sizes.peak_kb - baseline.resident_kb : 0;
    result->minor_faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
    result->anonymous_huge_kb = huge_kb > huge_before_kb ? huge_kb - huge_before_kb : 0;
    result->page_table_kb = sizes.page_table_kb > baseline.page_table_kb
                                ? sizes.page_table_kb - baseline.page_table_kb
                                : 0;
    result->status = REPLAY_DONE;
}

/* ---- set-up ---- */

static void *map_touched(struct replay_result *result, size_t bytes)
{
    void *at = child_map(bytes);
    if (!at)
        fail_setup(result);
    return at;
}

static void map_stacks(struct replay_process *process)
{
    size_t count = process->header->thread_count;
    process->stacks = mmap(NULL, count * STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (process->stacks == MAP_FAILED)
        fail_setup(process->result);
    /* Huge pages under the stacks would be counted as the allocator's. */
    madvise(process->stacks, count * STACK_BYTES, MADV_NOHUGEPAGE);
    for (size_t i = 1; i < count && i < STACKS_TOUCHED_MAX; i++)
        memset(process->stacks + (i + 1) * STACK_BYTES - STACK_TOUCHED_BYTES, 0,
               STACK_TOUCHED_BYTES);
}

static void set_up_threads(struct replay_process *process, const uint64_t *words, bool check_all)
{
    struct replay_result *result = process->result;
    const struct replay_header *header = process->header;
    uint32_t count = header->thread_count;
    void **slots = map_touched(result, header->slot_count * sizeof(void *));
    process->threads = map_touched(result, count * sizeof *process->threads);
    process->states = map_touched(result, count * sizeof *process->states);
    process->entries = (const struct replay_thread_entry *)(words + header->thread_table);
    map_stacks(process);
    unsigned char *buffers = NULL;
    uint32_t buffer_count = count < FLOOR_BUFFERS_MAX ? count : FLOOR_BUFFERS_MAX;
    if (process->replay == replay_floor)
        buffers = map_touched(result, buffer_count * (FLOOR_BUFFER_BYTES + FLOOR_BLOCK_BYTES));
    for (uint32_t i = 0; i < count; i++) {
        struct replay_thread *thread = &process->threads[i];
        thread->words = words;
        thread->first = words + process->entries[i].first_word;
        thread->slots = slots;
        thread->check_all = check_all;
        thread->process = process;
        if (buffers)
            thread->buffer =
                buffers + (i % buffer_count) * (FLOOR_BUFFER_BYTES + FLOOR_BLOCK_BYTES);
    }
}

static const uint64_t *map_trace(struct replay_result *result, int file)
{
    struct replay_header header;
    if (pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header)
        fail_setup(result);
    const uint64_t *words = mmap(NULL, header.total_words * sizeof(uint64_t), PROT_READ,
                                 MAP_SHARED | MAP_POPULATE, file, 0);
    if (words == MAP_FAILED)
        fail_setup(result);
    return words;
}

static const struct {
    const char *name; /* as launch_kind has it */
    void (*replay)(struct replay_thread *);
} kinds[] = {
    {"floor", replay_floor},     {"malloc", replay_malloc}, {"slate", replay_slate},
    {"call", replay_call},       {"region", replay_region}, {"slab", replay_slab},
#ifdef HAVE_APR
    {"apr", replay_apr},
#endif
#ifdef HAVE_OBSTACK
    {"obstack", replay_obstack},
#endif
#ifdef HAVE_TALLOC
    {"talloc", replay_talloc},
#endif
};

/* slate replay-child KIND CHECK LIBRARY: started by replay with the trace as file 3 and the result
 * page as file 4. */
int command_replay_child(int argc, char **argv)
{
    static struct replay_process process;
    if (argc != 4) {
        static const char text[] = "slate: replay-child is for slate replay alone\n";
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
        return EXIT_USAGE;
    }
    struct replay_result *result = child_map_result(sizeof *result);
    if (!result)
        return EXIT_FAILED;
    process.result = result;
    process.replay = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            process.replay = kinds[i].replay;
    if (!process.replay)
        fail_setup(result);
    if (process.replay == replay_malloc && !child_find_malloc(result->version, argv[3])) {
        result->status = REPLAY_NOT_PRELOADED;
        return EXIT_FAILED;
    }
    if (process.replay == replay_slate || process.replay == replay_call ||
        process.replay == replay_region)
        child_set_version(result->version, slate_version());
    const uint64_t *words = map_trace(result, LAUNCH_INPUT_FILE);
    process.header = (const struct replay_header *)words;
    set_up_threads(&process, words, argv[2][0] == '1');
    measure(&process);
    return EXIT_GOOD;
}
