/* check_trace.c - tests of the trace reader: every record, every fault, traces that were cut short.
 *
 * SPDX-License-Identifier: MIT
 */
#include "trace.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define BYTES(...)                                                                                 \
    ((const unsigned char[]){__VA_ARGS__}), sizeof((const unsigned char[]){__VA_ARGS__})

static char path[] = "/tmp/check_trace.XXXXXX";

static void setup(void)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void teardown(void) { unlink(path); }

static void write_file(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

/* Writes a trace of these records, less the last `cut` bytes of the file. */
static void write_trace_cut(const void *records, size_t length, size_t cut)
{
    size_t room = ZSTD_compressBound(length) + SLATE_TRACE_MAGIC_LENGTH;
    unsigned char *bytes = malloc(room);
    memcpy(bytes, SLATE_TRACE_MAGIC, SLATE_TRACE_MAGIC_LENGTH);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t packed = ZSTD_compress2(context, bytes + SLATE_TRACE_MAGIC_LENGTH,
                                   room - SLATE_TRACE_MAGIC_LENGTH, records, length);
    ck_assert(!ZSTD_isError(packed));
    ck_assert_uint_lt(cut, packed);
    write_file(bytes, SLATE_TRACE_MAGIC_LENGTH + packed - cut);
    ZSTD_freeCCtx(context);
    free(bytes);
}

static void write_trace(const void *records, size_t length) { write_trace_cut(records, length, 0); }

static struct slate_trace_reader *open_trace(void)
{
    struct slate_trace_reader *reader;
    ck_assert_msg(slate_trace_open(&reader, path) == 0, "%s", slate_trace_message(reader));
    return reader;
}

/* The records must be good up to the one with number `record`, and that one rejected for a reason
 * that has `what`. */
static void expect_rejected(const unsigned char *records, size_t length, unsigned long record,
                            const char *what)
{
    char place[128];
    struct slate_trace_record got;
    write_trace(records, length);
    struct slate_trace_reader *reader = open_trace();
    for (unsigned long i = 1; i < record; i++) {
        ck_assert_msg(slate_trace_next(reader, &got) == 1, "%s", slate_trace_message(reader));
        ck_assert_uint_eq(got.number, i);
    }
    ck_assert_int_eq(slate_trace_next(reader, &got), -1);
    snprintf(place, sizeof place, "%s: record %lu: ", path, record);
    const char *message = slate_trace_message(reader);
    ck_assert_msg(strncmp(message, place, strlen(place)) == 0, "%s", message);
    ck_assert_msg(strstr(message, what) != NULL, "%s lacks %s", message, what);
    ck_assert_ptr_null(strchr(message, '\n'));
    ck_assert_int_eq(slate_trace_next(reader, &got), -1);
    slate_trace_close(reader);
}

static void expect_good(const unsigned char *records, size_t length, unsigned long count)
{
    struct slate_trace_record got;
    write_trace(records, length);
    struct slate_trace_reader *reader = open_trace();
    for (unsigned long i = 0; i < count; i++)
        ck_assert_msg(slate_trace_next(reader, &got) == 1, "%s", slate_trace_message(reader));
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert(!slate_trace_cut_short(reader));
    slate_trace_close(reader);
}

/* As far as `count` records, then the end without an end-of-trace record. */
static void expect_cut_short(unsigned long count)
{
    struct slate_trace_record got;
    struct slate_trace_reader *reader = open_trace();
    for (unsigned long i = 0; i < count; i++)
        ck_assert_msg(slate_trace_next(reader, &got) == 1, "%s", slate_trace_message(reader));
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert(slate_trace_cut_short(reader));
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert_uint_eq(slate_trace_records(reader), count);
    slate_trace_close(reader);
}

static void expect_not_opened(const char *name, const char *what)
{
    struct slate_trace_reader *reader;
    ck_assert_int_eq(slate_trace_open(&reader, name), -1);
    const char *message = slate_trace_message(reader);
    ck_assert_msg(strncmp(message, name, strlen(name)) == 0, "%s", message);
    ck_assert_msg(strstr(message, what) != NULL, "%s lacks %s", message, what);
    slate_trace_close(reader);
}

START_TEST(test_records)
{
    static const unsigned char records[] = {1, 48,         /* 1: malloc 48: object 0 */
                                            2, 0x80, 0x08, /* 2: calloc 1024: object 1 */
                                            8, 0xac, 0x02, /* 3: time 300 */
                                            6, 5,          /* 4: thread 5 */
                                            3, 2,    64,   /* 5: realloc object 0 to 64: object 2 */
                                            7, 3,    'a',  'b', 0, /* 6: mark */
                                            5, 12,   7, /* 7: aligned 4096, 7 bytes: object 3 */
                                            4, 3,       /* 8: free object 1 */
                                            0};
    struct slate_trace_record got;
    write_trace(records, sizeof records);
    struct slate_trace_reader *reader = open_trace();

    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_MALLOC && got.size == 48 && got.object == 0);
    ck_assert(got.thread == 0 && got.number == 1);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_CALLOC && got.size == 1024 && got.object == 1);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_TIME && got.microseconds == 300);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_THREAD && got.thread == 5);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_REALLOC && got.ended == 0 && got.object == 2);
    ck_assert(got.size == 64 && got.thread == 5);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_MARK && got.text_length == 3);
    ck_assert_mem_eq(got.text, "ab\0", 3);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_ALIGNED && got.log2_alignment == 12);
    ck_assert(got.size == 7 && got.object == 3);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert(got.tag == SLATE_TRACE_FREE && got.ended == 1 && got.number == 8);
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert(!slate_trace_cut_short(reader));
    ck_assert_uint_eq(slate_trace_records(reader), 8);
    ck_assert_uint_eq(slate_trace_objects(reader), 4);
    ck_assert_uint_eq(slate_trace_raw_bytes(reader), sizeof records);
    slate_trace_close(reader);
}
END_TEST

START_TEST(test_limits)
{
    expect_good(BYTES(1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0), 1); /* 2^47 */
    expect_rejected(BYTES(1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0), 1, "above 2^47");
    expect_rejected(BYTES(1, 1, 3, 1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0), 2,
                    "above 2^47");
    expect_good(BYTES(5, 30, 1, 0), 1);
    expect_rejected(BYTES(5, 31, 1, 0), 1, "above 2^30");
    expect_good(BYTES(6, 0xff, 0xff, 3, 0), 1);
    expect_rejected(BYTES(6, 0x80, 0x80, 4, 0), 1, "above 65535");
}
END_TEST

START_TEST(test_numbers)
{
    expect_good(BYTES(8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0), 1);
    expect_good(BYTES(1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0), 1);
    expect_rejected(BYTES(8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0), 1,
                    "64 bits");
    expect_rejected(
        BYTES(1, 1, 8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0), 2,
        "longer than 10 bytes");
}
END_TEST

START_TEST(test_tags)
{
    expect_rejected(BYTES(9, 0), 1, "unknown tag 0x09");
    expect_rejected(BYTES(1, 8, 0xff, 0), 2, "unknown tag 0xff");
}
END_TEST

START_TEST(test_references)
{
    expect_rejected(BYTES(1, 8, 4, 0, 0), 2, "reference 0");
    expect_rejected(BYTES(4, 1, 0), 1, "before object 0");
    expect_rejected(BYTES(1, 8, 3, 2, 9, 0), 2, "before object 0");
    expect_rejected(BYTES(1, 8, 4, 1, 4, 1, 0), 3, "object 0 has ended");
    expect_rejected(BYTES(1, 8, 3, 1, 9, 4, 2, 0), 3, "object 0 has ended");
    expect_rejected(BYTES(1, 8, 4, 1, 3, 1, 9, 0), 3, "object 0 has ended");
    expect_good(BYTES(1, 8, 3, 1, 9, 4, 1, 0), 3);
}
END_TEST

START_TEST(test_not_a_trace)
{
    expect_not_opened("/nonexistent/x.slt", "No such file");
    write_file("", 0);
    expect_not_opened(path, "not a trace");
    write_file("SLTRACE", 7);
    expect_not_opened(path, "not a trace");
    write_file("SLTRACE\2................", 24);
    expect_not_opened(path, "not a trace");
}
END_TEST

START_TEST(test_not_zstd)
{
    struct slate_trace_record got;
    write_file("SLTRACE\1this is no zstd frame", 30);
    struct slate_trace_reader *reader = open_trace();
    ck_assert_int_eq(slate_trace_next(reader, &got), -1);
    ck_assert_ptr_nonnull(strstr(slate_trace_message(reader), "record 1: the zstd stream"));
    slate_trace_close(reader);
}
END_TEST

/* The records are all there, but the check sum behind them says that they are not what was written.
 */
START_TEST(test_check_sum)
{
    struct slate_trace_record got;
    write_trace(BYTES(1, 48, 0));
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, -1, SEEK_END);
    int last = fgetc(file);
    fseek(file, -1, SEEK_END);
    fputc(last ^ 1, file);
    fclose(file);
    struct slate_trace_reader *reader = open_trace();
    int result;
    while ((result = slate_trace_next(reader, &got)) == 1) {
    }
    ck_assert_int_eq(result, -1);
    ck_assert_ptr_nonnull(strstr(slate_trace_message(reader), "the zstd stream is damaged"));
    slate_trace_close(reader);
}
END_TEST

START_TEST(test_cut_short)
{
    write_trace(BYTES(1, 48, 1, 56)); /* no end-of-trace record */
    expect_cut_short(2);
    write_trace(BYTES(1, 48, 1)); /* inside a record */
    expect_cut_short(1);
    write_trace(BYTES(1, 48, 1, 0x80)); /* inside a number */
    expect_cut_short(1);
    write_trace(BYTES(1, 48, 3, 1)); /* between two numbers: the object has not ended */
    expect_cut_short(1);
    write_trace(BYTES(1, 48, 7, 9, 'a')); /* inside a text */
    expect_cut_short(1);
    write_file(SLATE_TRACE_MAGIC, SLATE_TRACE_MAGIC_LENGTH); /* no stream at all */
    expect_cut_short(0);
}
END_TEST

/* The file itself was cut, in the middle of its stream: all blocks before are used. */
START_TEST(test_file_cut)
{
    enum { RECORDS = 500000 };
    unsigned char *records = malloc(2 * RECORDS + 1);
    unsigned state = 1;
    for (size_t i = 0; i < RECORDS; i++) {
        state = state * 1103515245 + 12345;
        records[2 * i] = SLATE_TRACE_MALLOC;
        records[2 * i + 1] = state >> 20 & 0x7f;
    }
    records[2 * RECORDS] = SLATE_TRACE_END;
    write_trace_cut(records, 2 * RECORDS + 1, 1000);
    struct slate_trace_reader *reader = open_trace();
    struct slate_trace_record got;
    unsigned long count = 0;
    int result;
    while ((result = slate_trace_next(reader, &got)) == 1) {
        ck_assert_uint_eq(got.size, records[2 * count + 1]);
        count++;
    }
    ck_assert_int_eq(result, 0);
    ck_assert(slate_trace_cut_short(reader));
    ck_assert_uint_gt(count, RECORDS / 2);
    ck_assert_uint_lt(count, RECORDS);
    slate_trace_close(reader);
    free(records);
}
END_TEST

/* A text longer than the reader's buffers; what is behind the first MiB is left out, the next
 * record is found. */
START_TEST(test_long_text)
{
    enum { LENGTH = 3 << 20, KEPT = 1 << 20 };
    unsigned char *records = malloc(LENGTH + 16);
    size_t used = 0;
    records[used++] = SLATE_TRACE_MARK;
    records[used++] = 0x80;
    records[used++] = 0x80;
    records[used++] = 0xc0;
    records[used++] = 0x01;
    for (size_t i = 0; i < LENGTH; i++)
        records[used++] = (unsigned char)('a' + i % 23);
    records[used++] = SLATE_TRACE_MALLOC;
    records[used++] = 77;
    records[used++] = SLATE_TRACE_END;
    write_trace(records, used);
    struct slate_trace_reader *reader = open_trace();
    struct slate_trace_record got;
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert_uint_eq(got.text_length, KEPT);
    ck_assert_mem_eq(got.text, records + 5, KEPT);
    ck_assert_int_eq(slate_trace_next(reader, &got), 1);
    ck_assert_uint_eq(got.size, 77);
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    slate_trace_close(reader);
    free(records);
}
END_TEST

/* Writers may use windows that zstd does not accept unless told to. */
START_TEST(test_large_window)
{
    static const unsigned char records[] = {1, 48, 0};
    unsigned char bytes[256] = SLATE_TRACE_MAGIC;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ck_assert(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 1)));
    ck_assert(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28)));
    ZSTD_inBuffer in = {records, sizeof records, 0};
    ZSTD_outBuffer out = {bytes, sizeof bytes, SLATE_TRACE_MAGIC_LENGTH};
    /* In two steps, so that zstd does not know the length and take a smaller window. */
    ck_assert(!ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush)));
    ck_assert_uint_eq(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0);
    write_file(bytes, out.pos);
    ZSTD_freeCCtx(context);
    struct slate_trace_record got;
    struct slate_trace_reader *reader = open_trace();
    ck_assert_msg(slate_trace_next(reader, &got) == 1, "%s", slate_trace_message(reader));
    ck_assert_int_eq(slate_trace_next(reader, &got), 0);
    ck_assert(!slate_trace_cut_short(reader));
    slate_trace_close(reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *tests = tcase_create("reader");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_records);
    tcase_add_test(tests, test_limits);
    tcase_add_test(tests, test_numbers);
    tcase_add_test(tests, test_tags);
    tcase_add_test(tests, test_references);
    tcase_add_test(tests, test_not_a_trace);
    tcase_add_test(tests, test_not_zstd);
    tcase_add_test(tests, test_check_sum);
    tcase_add_test(tests, test_cut_short);
    tcase_add_test(tests, test_file_cut);
    tcase_add_test(tests, test_long_text);
    tcase_add_test(tests, test_large_window);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
