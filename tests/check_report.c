/* tests/check_report.c - messages without a heap.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "report.h"

#include <pthread.h>
#include <sys/socket.h>

#include "check_support.h"

static struct child_end end;

/* The lines that `body` prints in a child. */
static const char *printed(void (*body)(void))
{
    run_child(body, &end);
    ck_assert_msg(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0, "status %d: %s",
                  end.status, end.text);
    return end.text;
}

static void check_bytes(uint64_t bytes, const char *wanted)
{
    struct slatei_line line = {0};
    slatei_line_bytes(&line, bytes);
    ck_assert_uint_eq(line.length, strlen(wanted));
    ck_assert_msg(memcmp(line.text, wanted, line.length) == 0, "%.*s instead of %s",
                  (int)line.length, line.text, wanted);
}

START_TEST(bytes)
{
    check_bytes(0, "0 bytes");
    check_bytes(1, "1 bytes");
    check_bytes(1023, "1023 bytes");
    check_bytes(1024, "1 KiB");
    check_bytes(1025, "1025 bytes");
    check_bytes(1536, "1536 bytes");
    check_bytes(5120, "5 KiB");
    check_bytes(8 * MIB, "8 MiB");
    check_bytes(8 * MIB + 1, "8388609 bytes");
    check_bytes(8 * MIB + KIB, "8193 KiB");
    check_bytes(3 * GIB, "3 GiB");
    check_bytes(1024 * GIB, "1 TiB");
    check_bytes(2048 * GIB + GIB, "2049 GiB");
    check_bytes(UINT64_MAX, "18446744073709551615 bytes");
}
END_TEST

START_TEST(columns)
{
    struct slatei_line line = {0};
    slatei_line_number(&line, 0);
    slatei_line_text(&line, "|");
    slatei_line_column(&line, 42, 5);
    slatei_line_text(&line, "|");
    slatei_line_column(&line, 42, 1);
    slatei_line_text(&line, "|");
    slatei_line_column(&line, 0, 2);
    slatei_line_text(&line, "|");
    slatei_line_number(&line, UINT64_MAX);
    static const char wanted[] = "0|   42|42| 0|18446744073709551615";
    ck_assert_uint_eq(line.length, sizeof wanted - 1);
    ck_assert(memcmp(line.text, wanted, line.length) == 0);
}
END_TEST

static void print_two(void)
{
    struct slatei_line line = {0};
    slatei_line_text(&line, "one ");
    slatei_line_number(&line, 1);
    slatei_line_print(&line);
    require_equal(line.length, 0);
    slatei_line_text(&line, "two");
    slatei_line_print(&line);
}

START_TEST(lines) { ck_assert_str_eq(printed(print_two), "one 1\ntwo\n"); }
END_TEST

static void print_empty(void)
{
    struct slatei_line line = {0};
    slatei_line_print(&line);
}

START_TEST(empty_line) { ck_assert_str_eq(printed(print_empty), "\n"); }
END_TEST

static size_t length_to_print;

static void print_long(void)
{
    struct slatei_line line = {0};
    for (size_t i = 0; i < length_to_print; i++)
        slatei_line_text(&line, i % 2 == 0 ? "a" : "b");
    slatei_line_number(&line, 77);
    slatei_line_print(&line);
}

/* Around the length at which a line is cut: always one line, and the front of what was meant. */
START_TEST(long_lines)
{
    size_t room = sizeof((struct slatei_line *)0)->text;
    for (length_to_print = room - 8; length_to_print < room + 4; length_to_print++) {
        const char *text = printed(print_long);
        size_t whole = length_to_print + 3;
        ck_assert_uint_eq(end.length, whole <= room ? whole : room);
        ck_assert_uint_eq(lines_of(text), 1);
        ck_assert_int_eq(text[end.length - 1], '\n');
        for (size_t i = 0; i < length_to_print && i + 1 < end.length; i++)
            ck_assert_int_eq(text[i], i % 2 == 0 ? 'a' : 'b');
    }
}
END_TEST

static void print_longest_text(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    slatei_report(text, "y", NULL);
}

START_TEST(one_long_text)
{
    const char *text = printed(print_longest_text);
    ck_assert_uint_eq(end.length, sizeof((struct slatei_line *)0)->text);
    ck_assert(strncmp(text, "slate: xxx", 10) == 0);
    ck_assert_uint_eq(lines_of(text), 1);
}
END_TEST

static void report_some(void)
{
    slatei_report("alone", NULL);
    slatei_report("a", "=", "b", "", ".", NULL);
}

START_TEST(reports) { ck_assert_str_eq(printed(report_some), "slate: alone\nslate: a=b.\n"); }
END_TEST

/* A packet for each call: a line is written with one. */
START_TEST(one_write_a_line)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    int kept = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    report_some();
    ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    char packet[600];
    ck_assert_int_eq(recv(ends[0], packet, sizeof packet, MSG_DONTWAIT), 13);
    ck_assert(memcmp(packet, "slate: alone\n", 13) == 0);
    ck_assert_int_eq(recv(ends[0], packet, sizeof packet, MSG_DONTWAIT), 12);
    ck_assert(memcmp(packet, "slate: a=b.\n", 12) == 0);
    ck_assert_int_eq(recv(ends[0], packet, sizeof packet, MSG_DONTWAIT), -1);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* Also when nobody listens. */
START_TEST(errno_is_kept)
{
    errno = 4321;
    int kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = 4321;
    slatei_report("into the void", NULL);
    int after = errno;
    dup2(kept, STDERR_FILENO);
    close(kept);
    ck_assert_int_eq(after, 4321);
}
END_TEST

static atomic_bool once[100];
static atomic_int firsts;

static void *race(void *unused)
{
    for (unsigned i = 0; i < sizeof once / sizeof *once; i++)
        if (slatei_report_first(&once[i]))
            atomic_fetch_add(&firsts, 1);
    return unused;
}

START_TEST(first_only_once)
{
    atomic_bool alone = false;
    ck_assert(slatei_report_first(&alone));
    ck_assert(!slatei_report_first(&alone));
    pthread_t threads[8];
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, race, NULL), 0);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(firsts, sizeof once / sizeof *once);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("report");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, bytes);
    tcase_add_test(tests, columns);
    tcase_add_test(tests, lines);
    tcase_add_test(tests, empty_line);
    tcase_add_test(tests, long_lines);
    tcase_add_test(tests, one_long_text);
    tcase_add_test(tests, reports);
    tcase_add_test(tests, one_write_a_line);
    tcase_add_test(tests, errno_is_kept);
    tcase_add_test(tests, first_only_once);
    return run_suite(suite);
}
