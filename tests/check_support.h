/* tests/check_support.h - what the check programs share: children with a heap of their own, random
 * numbers, mappings as the kernel tells them.
 *
 * SPDX-License-Identifier: MIT
 *
 * slate is set up once a process, so nearly every test runs in a child that starts with nothing
 * set up.  A child checks with require and its like; what it prints is shown when it fails.
 */
#ifndef CHECK_SUPPORT_H
#define CHECK_SUPPORT_H

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Not every program uses every helper. */
#define HELPER static __attribute__((unused))

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* ---- checks in a child */

#define CHILD_FAILED 90
#define CHILD_SECONDS 120

HELPER _Noreturn void child_fails(const char *file, int line, const char *text)
{
    dprintf(STDERR_FILENO, "%s:%d: does not hold: %s\n", file, line, text);
    _exit(CHILD_FAILED);
}

HELPER void require_values(const char *file, int line, const char *text, bool holds, uintmax_t a,
                           uintmax_t b)
{
    if (holds)
        return;
    dprintf(STDERR_FILENO, "%s:%d: does not hold: %s (%" PRIuMAX " and %" PRIuMAX ")\n", file, line,
            text, a, b);
    _exit(CHILD_FAILED);
}

#define require(condition) ((condition) ? (void)0 : child_fails(__FILE__, __LINE__, #condition))
#define require_relation(a, relation, b)                                                           \
    do {                                                                                           \
        uintmax_t left_ = (uintmax_t)(a), right_ = (uintmax_t)(b);                                 \
        require_values(__FILE__, __LINE__, #a " " #relation " " #b, left_ relation right_, left_,  \
                       right_);                                                                    \
    } while (0)
#define require_equal(a, b) require_relation(a, ==, b)
#define require_at_most(a, b) require_relation(a, <=, b)
#define require_at_least(a, b) require_relation(a, >=, b)

/* ---- children */

struct child_end {
    int status; /* as waitpid gives it */
    size_t length;
    char text[16384]; /* what it wrote to standard error, cut, with a zero byte behind */
};

/* Runs `body` in a child and waits for its end.  The child's exit status is 0 if body returns. */
HELPER void run_child(void (*body)(void), struct child_end *end)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        signal(SIGALRM, SIG_DFL); /* Check's handler would kill the parent too */
        alarm(CHILD_SECONDS);
        body();
        _exit(0);
    }
    close(ends[1]);
    end->length = 0;
    char rest[512];
    for (;;) {
        size_t room = sizeof end->text - 1 - end->length;
        ssize_t got = read(ends[0], room != 0 ? end->text + end->length : rest,
                           room != 0 ? room : sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (room != 0)
            end->length += (size_t)got;
    }
    end->text[end->length] = '\0';
    close(ends[0]);
    while (waitpid(child, &end->status, 0) < 0)
        ck_assert_int_eq(errno, EINTR);
}

/* The same for a child that is to end well. */
HELPER void in_child(void (*body)(void))
{
    struct child_end end;
    run_child(body, &end);
    ck_assert_msg(WIFEXITED(end.status), "the child ended by signal %d: %s", WTERMSIG(end.status),
                  end.text);
    ck_assert_msg(WEXITSTATUS(end.status) == 0, "the child ended with status %d: %s",
                  WEXITSTATUS(end.status), end.text);
    if (end.length != 0)
        fputs(end.text, stdout);
}

HELPER size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* A test whose body runs in a child. */
#define CHILD_TEST(name)                                                                           \
    static void name##_in_child(void);                                                             \
    START_TEST(name) { in_child(name##_in_child); }                                                \
    END_TEST static void name##_in_child(void)

/* ---- skipping */

/* Says on standard output why a test does not run here. */
#define SKIP_IF(condition, reason)                                                                 \
    do {                                                                                           \
        if (condition) {                                                                           \
            dprintf(STDOUT_FILENO, "%s: skipped: %s\n", __func__, reason);                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Where memory is counted or limited, the tools' own memory is in the way. */
#define SKIP_UNDER_TOOLS()                                                                         \
    SKIP_IF(SANITIZED || RUNNING_ON_VALGRIND, "sanitizers and Valgrind take memory of their own")

HELPER bool slow_here(void) { return SANITIZED || RUNNING_ON_VALGRIND; }

/* ---- random numbers */

struct random {
    uint64_t state;
};

/* The seed of the run: SLATE_SEED from the environment, else always the same. */
HELPER uint64_t seed_of_run(void)
{
    const char *text = getenv("SLATE_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    dprintf(STDERR_FILENO, "seed %" PRIu64 " (SLATE_SEED chooses another)\n", seed);
    return seed;
}

HELPER uint64_t next_random(struct random *random)
{
    uint64_t mixed = random->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

HELPER size_t below(struct random *random, size_t most) { return next_random(random) % most; }

/* Small ones are likely, as in programs: a random number of bits. */
HELPER size_t skewed(struct random *random, unsigned bits)
{
    return next_random(random) >> (64 - 1 - below(random, bits)) >> 0;
}

/* ---- contents */

/* A block's bytes follow from its address and a number. */
HELPER void fill(void *block, size_t size, uint64_t number)
{
    unsigned char *bytes = block;
    struct random random = {number};
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = next_random(&random);
        memcpy(bytes + i, &word, 8);
    }
    for (size_t i = size & ~(size_t)7; i < size; i++)
        bytes[i] = (unsigned char)(number + i);
}

/* Whether the first `kept` bytes of a block that was filled as one of `size` bytes are as they
 * were. */
HELPER bool holds(const void *block, size_t size, size_t kept, uint64_t number)
{
    const unsigned char *bytes = block;
    struct random random = {number};
    for (size_t i = 0; i + 8 <= size && i + 8 <= kept; i += 8) {
        uint64_t word = next_random(&random);
        if (memcmp(bytes + i, &word, 8) != 0)
            return false;
    }
    for (size_t i = size & ~(size_t)7; i < kept; i++)
        if (bytes[i] != (unsigned char)(number + i))
            return false;
    return true;
}

HELPER bool all_zero(const void *block, size_t size)
{
    const unsigned char *bytes = block;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* ---- what the kernel tells */

/* Bytes of a field of /proc/self/status, "VmHWM" for example. */
HELPER size_t status_bytes(const char *field)
{
    FILE *file = fopen("/proc/self/status", "re");
    size_t kilobytes = 0, length = strlen(field);
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, length) == 0 && line[length] == ':')
            kilobytes = strtoull(line + length + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return kilobytes << 10;
}

HELPER size_t minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_minflt;
}

struct mapping_seen {
    uintptr_t start, end;
    bool usable; /* can be read and written */
    bool small;  /* VmFlags nh */
    bool huge;   /* VmFlags hg */
    size_t anon_huge;
};

/* Reads /proc/self/smaps.  Returns how many mappings there are; at most `room` are stored. */
HELPER size_t read_mappings(struct mapping_seen *seen, size_t room)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    size_t count = 0;
    char line[512];
    struct mapping_seen *at = NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        uintptr_t start, end;
        char flags[5];
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, flags) == 3) {
            at = count < room ? &seen[count] : NULL;
            count++;
            if (at != NULL)
                *at = (struct mapping_seen){start, end,   strncmp(flags, "rw", 2) == 0,
                                            false, false, 0};
        } else if (at != NULL && strncmp(line, "VmFlags:", 8) == 0) {
            at->small = strstr(line, " nh") != NULL;
            at->huge = strstr(line, " hg") != NULL;
        } else if (at != NULL && strncmp(line, "AnonHugePages:", 14) == 0) {
            at->anon_huge = strtoull(line + 14, NULL, 10) << 10;
        }
    }
    if (file != NULL)
        fclose(file);
    return count;
}

/* NULL if an access after MADV_HUGEPAGE gives huge pages; else why not. */
HELPER const char *no_huge_pages(void)
{
    char text[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file == NULL)
        return "the kernel has no transparent huge pages";
    if (fgets(text, sizeof text, file) == NULL)
        text[0] = '\0';
    fclose(file);
    return strstr(text, "[never]") != NULL ? "transparent huge pages are off" : NULL;
}

/* How often the kernel found no huge page for a fault. */
HELPER size_t huge_fallbacks(void)
{
    FILE *file = fopen("/proc/vmstat", "re");
    size_t count = 0;
    char line[128];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "thp_fault_fallback ", 19) == 0)
            count = strtoull(line + 19, NULL, 10);
    if (file != NULL)
        fclose(file);
    return count;
}

/* Lets the process have `more` bytes of address space (RLIMIT_AS) or of writable memory
 * (RLIMIT_DATA) than it has now. */
HELPER void limit_growth(int resource, size_t more)
{
    size_t now = status_bytes(resource == RLIMIT_AS ? "VmSize" : "VmData");
    struct rlimit limit = {now + more, now + more};
    require_equal(setrlimit(resource, &limit), 0);
}

/* ---- main */

HELPER TCase *only_case(Suite *suite)
{
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, CHILD_SECONDS * 2);
    suite_add_tcase(suite, tcase);
    return tcase;
}

HELPER int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
