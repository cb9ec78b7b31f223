/* tests/check_tunables.c - every tunable's good and bad values, in code and in the environment.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "tunables.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#define SLATE_NO_INLINE
#include "check_support.h"
#include "report.h"
#include "slate.h"

/* One setting as a number. */
static uint64_t setting(const char *name)
{
    if (strcmp(name, "SLATE_POLICY") == 0)
        return slatei_settings.policy;
    if (strcmp(name, "SLATE_SWITCH") == 0)
        return slatei_settings.switch_bytes;
    if (strcmp(name, "SLATE_ARENAS") == 0)
        return slatei_settings.arenas;
    if (strcmp(name, "SLATE_SCRATCH") == 0)
        return slatei_settings.scratch;
    if (strcmp(name, "SLATE_SLICE") == 0)
        return slatei_settings.slice_bytes;
    if (strcmp(name, "SLATE_ORDER") == 0)
        return slatei_settings.order;
    if (strcmp(name, "SLATE_STATS") == 0)
        return slatei_settings.stats;
    if (strcmp(name, "SLATE_VERBOSE") == 0)
        return slatei_settings.verbose;
    ck_abort_msg("the test does not know %s", name);
    return 0;
}

static const struct slate_tunable *row_of(const char *name)
{
    size_t count;
    const struct slate_tunable *table = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

/* ---- the environment, in a child */

static const char *variable, *value;
static uint64_t wanted;
static struct child_end end;

static void read_environment(void)
{
    require_equal(setenv(variable, value, 1), 0);
    slatei_tunables_start();
    require_equal(setting(variable), wanted);
}

static void good(const char *name, const char *text, uint64_t number)
{
    variable = name;
    value = text;
    wanted = number;
    run_child(read_environment, &end);
    ck_assert_msg(end.status == 0 && end.length == 0, "%s=\"%s\": status %d: %s", name, text,
                  end.status, end.text);
}

static void require_told(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %s", part, text);
}

/* One line that names everything, and the default holds. */
static void bad(const char *name, const char *text)
{
    const struct slate_tunable *row = row_of(name);
    variable = name;
    value = text;
    wanted = setting(name);
    run_child(read_environment, &end);
    ck_assert_msg(end.status == 0, "%s=\"%s\": status %d: %s", name, text, end.status, end.text);
    ck_assert_msg(lines_of(end.text) == 1, "%s=\"%s\" gives: %s", name, text, end.text);
    ck_assert_int_eq(end.text[end.length - 1], '\n');
    require_told(end.text, name);
    if (strlen(text) < 40 && strpbrk(text, "\n\033") == NULL)
        require_told(end.text, text);
    require_told(end.text, row->range);
    char default_is_used[64];
    snprintf(default_is_used, sizeof default_is_used, "default %s is used", row->default_value);
    require_told(end.text, default_is_used);
}

START_TEST(words)
{
    good("SLATE_POLICY", "never", SLATEI_NEVER);
    good("SLATE_POLICY", "always", SLATEI_ALWAYS);
    good("SLATE_POLICY", "switch", SLATEI_SWITCH);
    good("SLATE_POLICY", "shared", SLATEI_SHARED);
    good("SLATE_ORDER", "bounded", SLATEI_BOUNDED);
    good("SLATE_ORDER", "lifo", SLATEI_LIFO);
    good("SLATE_STATS", "0", SLATEI_STATS_NONE);
    good("SLATE_STATS", "1", SLATEI_STATS_TEXT);
    good("SLATE_STATS", "json", SLATEI_STATS_JSON);
    good("SLATE_VERBOSE", "0", 0);
    good("SLATE_VERBOSE", "1", 1);
}
END_TEST

START_TEST(bad_words)
{
    static const char *const texts[] = {"",      "Never", "never ", " never", "nev", "neverr",
                                        "json1", "2",     "yes",    "-1",     "0x1", "word"};
    static const char *const names[] = {"SLATE_POLICY", "SLATE_ORDER", "SLATE_STATS",
                                        "SLATE_VERBOSE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            bad(names[i], texts[j]);
}
END_TEST

START_TEST(numbers)
{
    good("SLATE_SWITCH", "0", 0);
    good("SLATE_SWITCH", "1", 1);
    good("SLATE_SWITCH", "0008192", 8192);
    good("SLATE_SWITCH", "12345678901", UINT64_C(12345678901));
    good("SLATE_SWITCH", "4k", 4 * KIB);
    good("SLATE_SWITCH", "4K", 4 * KIB);
    good("SLATE_SWITCH", "7m", 7 * MIB);
    good("SLATE_SWITCH", "7M", 7 * MIB);
    good("SLATE_SWITCH", "3g", 3 * GIB);
    good("SLATE_SWITCH", "3G", 3 * GIB);
    good("SLATE_SWITCH", "1t", 1024 * GIB);
    good("SLATE_SWITCH", "1T", 1024 * GIB);
    good("SLATE_SWITCH", "1024G", 1024 * GIB);
    good("SLATE_SWITCH", "0T", 0);
    good("SLATE_ARENAS", "2", 2);
    good("SLATE_ARENAS", "1023", 1023);
    good("SLATE_SCRATCH", "0", 0);
    good("SLATE_SCRATCH", "100K", 100 * KIB);
    good("SLATE_SCRATCH", "1G", GIB);
    good("SLATE_SLICE", "16M", 16 * MIB);
    good("SLATE_SLICE", "16777216", 16 * MIB);
    good("SLATE_SLICE", "64G", 64 * GIB);
    /* Rounded to a power of two, and never below what is allowed. */
    good("SLATE_SLICE", "17M", 16 * MIB);
    good("SLATE_SLICE", "1000M", 512 * MIB);
}
END_TEST

START_TEST(bad_numbers)
{
    static const char *const texts[] = {"",
                                        "M",
                                        "-1",
                                        "+1",
                                        " 8M",
                                        "8M ",
                                        "8MB",
                                        "8MiB",
                                        "8 M",
                                        "8.5",
                                        "1e3",
                                        "0x8",
                                        "8,0",
                                        "eight",
                                        "8MM",
                                        "8P",
                                        "2T",
                                        "1048577M",
                                        "1025G",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "18446744073709551617",
                                        "99999999999999999999999999999999999",
                                        "36028797018963968K",
                                        "18014398509481985K",
                                        "17592186044417M",
                                        "17179869185G",
                                        "16777217T"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bad("SLATE_SWITCH", texts[i]);
        bad("SLATE_ARENAS", texts[i]);
        bad("SLATE_SLICE", texts[i]);
    }
    bad("SLATE_SWITCH", "1099511627777");
    bad("SLATE_ARENAS", "0");
    bad("SLATE_ARENAS", "1");
    bad("SLATE_ARENAS", "1024");
    bad("SLATE_ARENAS", "2K");
    bad("SLATE_SCRATCH", "2G");
    bad("SLATE_SCRATCH", "-1");
    bad("SLATE_SLICE", "0");
    bad("SLATE_SLICE", "16777215");
    bad("SLATE_SLICE", "65G");
}
END_TEST

/* Whatever the value is made of, there is one line and its end is not lost. */
START_TEST(odd_values)
{
    char text[3000];
    size_t count;
    const struct slate_tunable *table = slate_tunables(&count);
    for (size_t i = 0; i < count; i++) {
        memset(text, '9', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        bad(table[i].name, text);
        bad(table[i].name, "8M\nslate: no");
        bad(table[i].name, "\033[2Jnever");
    }
}
END_TEST

static void read_two_bad(void)
{
    setenv("SLATE_ARENAS", "none", 1);
    setenv("SLATE_POLICY", "sometimes", 1);
    setenv("SLATE_SWITCH", "2M", 1);
    slatei_tunables_start();
    require_equal(slatei_settings.switch_bytes, 2 * MIB);
}

/* Each has its line; good ones beside them count. */
START_TEST(several_bad)
{
    run_child(read_two_bad, &end);
    ck_assert_int_eq(end.status, 0);
    ck_assert_uint_eq(lines_of(end.text), 2);
    require_told(end.text, "SLATE_ARENAS=\"none\"");
    require_told(end.text, "SLATE_POLICY=\"sometimes\"");
}
END_TEST

/* ---- the table */

START_TEST(table)
{
    size_t count = 0;
    const struct slate_tunable *table = slate_tunables(&count);
    ck_assert_uint_ge(count, 6);
    for (size_t i = 0; i < count; i++) {
        ck_assert(strncmp(table[i].name, "SLATE_", 6) == 0);
        ck_assert_uint_gt(strlen(table[i].unit), 0);
        ck_assert_uint_gt(strlen(table[i].range), 0);
        ck_assert_uint_gt(strlen(table[i].default_value), 0);
        ck_assert_int_eq(table[i].help[strlen(table[i].help) - 1], '.');
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(table[i].name, table[j].name);
    }
    static const char *const named[] = {"SLATE_POLICY", "SLATE_SWITCH", "SLATE_ARENAS",
                                        "SLATE_SLICE",  "SLATE_STATS",  "SLATE_VERBOSE"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        ck_assert_msg(row_of(named[i]) != NULL, "%s is missing", named[i]);
}
END_TEST

CHILD_TEST(defaults_of_the_table_hold)
{
    size_t count;
    const struct slate_tunable *table = slate_tunables(&count);
    for (size_t i = 0; i < count; i++) {
        uint64_t before = setting(table[i].name);
        require_equal(slatei_tunables_set(table[i].name, table[i].default_value), 0);
        require_equal(setting(table[i].name), before);
    }
}

static uint64_t number_of(const char *text)
{
    char *behind;
    uint64_t number = strtoull(text, &behind, 10);
    switch (*behind) {
    case 'K':
        return number << 10;
    case 'M':
        return number << 20;
    case 'G':
        return number << 30;
    case 'T':
        return number << 40;
    default:
        return number;
    }
}

static int set_number(const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return slatei_tunables_set(name, text);
}

/* What the range says is what is allowed: "A to B", or words. */
CHILD_TEST(ranges_of_the_table_hold)
{
    size_t count;
    const struct slate_tunable *table = slate_tunables(&count);
    for (size_t i = 0; i < count; i++) {
        const char *name = table[i].name, *to = strstr(table[i].range, " to ");
        if (to != NULL) {
            uint64_t least = number_of(table[i].range), most = number_of(to + 4);
            require(least < most);
            require_equal(set_number(name, least), 0);
            require_equal(set_number(name, most), 0);
            require_equal(set_number(name, most + 1), EINVAL);
            if (least > 0)
                require_equal(set_number(name, least - 1), EINVAL);
            continue;
        }
        char words[128];
        snprintf(words, sizeof words, "%s", table[i].range);
        unsigned found = 0;
        for (char *word = strtok(words, ", "); word != NULL; word = strtok(NULL, ", "))
            if (strcmp(word, "or") != 0) {
                require_equal(slatei_tunables_set(name, word), 0);
                require_equal(setting(name), found);
                found++;
            }
        require_at_least(found, 2);
    }
}

CHILD_TEST(names_of_policies)
{
    for (unsigned i = SLATEI_NEVER; i <= SLATEI_SHARED; i++) {
        require_equal(slatei_tunables_set("SLATE_POLICY", slatei_policy_name(i)), 0);
        require_equal(slatei_settings.policy, i);
    }
}

/* ---- in code */

CHILD_TEST(tune_wins_over_the_environment)
{
    setenv("SLATE_SWITCH", "2M", 1);
    setenv("SLATE_POLICY", "nonsense", 1); /* not even looked at */
    setenv("SLATE_ARENAS", "7", 1);
    errno = 99;
    require_equal(slate_tune("SLATE_SWITCH", "4M"), 0);
    require_equal(slate_tune("SLATE_POLICY", "always"), 0);
    require_equal(slate_tune("SLATE_ARENAS", "many"), EINVAL); /* then the environment's holds */
    require_equal(slate_tune("SLATE_NOTHING", "1"), EINVAL);
    require_equal(slate_tune("", ""), EINVAL);
    require_equal(slate_tune("slate_switch", "1M"), EINVAL);
    require_equal(errno, 99);
    void *block = slate_alloc(100);
    require(block != NULL);
    slate_free(block);
    require_equal(slatei_settings.switch_bytes, 4 * MIB);
    require_equal(slatei_settings.policy, SLATEI_ALWAYS);
    require_equal(slatei_settings.arenas, 7);
}

CHILD_TEST(tune_too_late)
{
    require_equal(slate_tune("SLATE_SWITCH", "6M"), 0);
    require_equal(slate_tune("SLATE_SWITCH", "2M"), 0); /* the last one counts */
    slate_free(NULL);                                   /* no allocation */
    require_equal(slate_usable_size(NULL), 0);
    require_equal(slate_tune("SLATE_SLICE", "32M"), 0);
    void *block = slate_alloc(100);
    require(block != NULL);
    errno = 99;
    require_equal(slate_tune("SLATE_SWITCH", "4M"), EBUSY);
    require_equal(slate_tune("SLATE_SWITCH", "nonsense"), EBUSY);
    require_equal(slate_tune("SLATE_NOTHING", "1"), EBUSY);
    require_equal(errno, 99);
    require_equal(slatei_settings.switch_bytes, 2 * MIB);
    slate_free(block);
    require_equal(slate_tune("SLATE_SWITCH", "4M"), EBUSY);
}

static void be_verbose(void)
{
    require_equal(slate_tune("SLATE_VERBOSE", "1"), 0);
    require_equal(slate_tune("SLATE_POLICY", "shared"), 0);
    require_equal(slate_tune("SLATE_SWITCH", "6M"), 0);
    require(slate_alloc(1) != NULL);
    require(slate_alloc(100000) != NULL);
}

START_TEST(verbose)
{
    run_child(be_verbose, &end);
    ck_assert_msg(end.status == 0, "%s", end.text);
    ck_assert_uint_eq(lines_of(end.text), 1);
    require_told(end.text, "shared");
    require_told(end.text, "6 MiB");
}
END_TEST

/* ---- a set-user-id program */

#define SECURE_WORD "--in-secure-mode"
#define NOT_SECURE 3

/* The rest of the test below, in the copy of this program. */
static int in_secure_mode(void)
{
    if (getauxval(AT_SECURE) == 0)
        return NOT_SECURE;
    void *block = slate_alloc(100);
    return block != NULL && slatei_settings.policy != SLATEI_NEVER &&
                   slatei_settings.switch_bytes != 2 * MIB
               ? 0
               : 1;
}

static char copy_path[64];

static void run_secure_copy(void)
{
    setenv("SLATE_POLICY", "never", 1);
    setenv("SLATE_SWITCH", "2M", 1);
    setenv("SLATE_ARENAS", "nonsense", 1); /* no report either */
    execl(copy_path, copy_path, SECURE_WORD, (char *)NULL);
    _exit(NOT_SECURE);
}

START_TEST(secure_mode)
{
    SKIP_IF(SANITIZED || RUNNING_ON_VALGRIND,
            "sanitizers and Valgrind do not run set-user-id programs");
    SKIP_IF(geteuid() != 0, "only root can make a set-user-id program");
    ck_assert_uint_ne(setting("SLATE_POLICY"), SLATEI_NEVER);
    snprintf(copy_path, sizeof copy_path, "/tmp/slate-check-XXXXXX");
    int copy = mkstemp(copy_path), self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(copy, 0);
    ck_assert_int_ge(self, 0);
    char part[65536];
    ssize_t got;
    while ((got = read(self, part, sizeof part)) > 0)
        ck_assert_int_eq(write(copy, part, (size_t)got), got);
    close(self);
    int prepared = fchown(copy, 65534, 65534) == 0 && fchmod(copy, 04755) == 0;
    close(copy);
    run_child(run_secure_copy, &end);
    unlink(copy_path);
    bool secure = prepared && WIFEXITED(end.status) && WEXITSTATUS(end.status) != NOT_SECURE;
    SKIP_IF(!secure, "set-user-id programs are not privileged here");
    ck_assert_msg(end.status == 0, "status %d: %s", end.status, end.text);
    ck_assert_uint_eq(end.length, 0);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], SECURE_WORD) == 0)
        return in_secure_mode();
    size_t count;
    const struct slate_tunable *rows = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        unsetenv(rows[i].name);
    Suite *suite = suite_create("tunables");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, words);
    tcase_add_test(tests, bad_words);
    tcase_add_test(tests, numbers);
    tcase_add_test(tests, bad_numbers);
    tcase_add_test(tests, odd_values);
    tcase_add_test(tests, several_bad);
    tcase_add_test(tests, table);
    tcase_add_test(tests, defaults_of_the_table_hold);
    tcase_add_test(tests, ranges_of_the_table_hold);
    tcase_add_test(tests, names_of_policies);
    tcase_add_test(tests, tune_wins_over_the_environment);
    tcase_add_test(tests, tune_too_late);
    tcase_add_test(tests, verbose);
    tcase_add_test(tests, secure_mode);
    return run_suite(suite);
}
