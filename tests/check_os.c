/* tests/check_os.c - what lib/os.c asks of the kernel.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "os.h"

#include <sys/mman.h>

#include "check_support.h"

#define ODD_ERRNO 12345

/* The call gives `wanted` and leaves errno alone. */
#define require_result(call, wanted)                                                               \
    do {                                                                                           \
        errno = ODD_ERRNO;                                                                         \
        int result_ = (call);                                                                      \
        int after_ = errno;                                                                        \
        require_equal(result_, wanted);                                                            \
        require_equal(after_, ODD_ERRNO);                                                          \
    } while (0)

/* Valgrind looks at system calls itself and has other error numbers. */
#define require_refused(call, wanted)                                                              \
    do {                                                                                           \
        errno = ODD_ERRNO;                                                                         \
        int result_ = (call);                                                                      \
        int after_ = errno;                                                                        \
        require(result_ == (wanted) || (result_ != 0 && RUNNING_ON_VALGRIND));                     \
        require_equal(after_, ODD_ERRNO);                                                          \
    } while (0)

static size_t page;

static void start(void)
{
    errno = ODD_ERRNO;
    slatei_os_start();
    require_equal(errno, ODD_ERRNO);
    page = slatei_os_page_size();
}

static void *mapped(size_t size, size_t alignment)
{
    void *address = NULL;
    require_result(slatei_os_map(size, alignment, &address), 0);
    return address;
}

static const struct mapping_seen *mapping_of(const void *address)
{
    static struct mapping_seen seen[4096];
    size_t count = read_mappings(seen, sizeof seen / sizeof *seen);
    require_at_most(count, sizeof seen / sizeof *seen);
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)address - seen[i].start < seen[i].end - seen[i].start)
            return &seen[i];
    return NULL;
}

CHILD_TEST(sizes)
{
    start();
    require_equal(page, sysconf(_SC_PAGESIZE));
    size_t huge = slatei_os_huge_page_size();
    require_at_least(huge, page);
    require_equal(huge & (huge - 1), 0);
    /* What the kernel says, where it says it. */
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "re");
    size_t told;
    if (file != NULL && fscanf(file, "%zu", &told) == 1)
        require_equal(huge, told);
}

CHILD_TEST(no_address_limit)
{
    struct rlimit limit;
    require_equal(getrlimit(RLIMIT_AS, &limit), 0);
    SKIP_IF(limit.rlim_cur != RLIM_INFINITY, "the address space is limited here");
    start();
    require_equal(slatei_os_address_limit(), SIZE_MAX);
}

CHILD_TEST(address_limit)
{
    SKIP_UNDER_TOOLS();
    struct rlimit limit = {3 * GIB, 4 * GIB};
    require_equal(setrlimit(RLIMIT_AS, &limit), 0);
    start();
    require_equal(slatei_os_address_limit(), 3 * GIB);
}

CHILD_TEST(data_limit)
{
    SKIP_UNDER_TOOLS();
    start();
    struct rlimit limit = {3 * GIB, 4 * GIB};
    require_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    require(slatei_os_data_limited());
}

/* A debugger that dumps a process leaves out what has VmFlags "dd". */
static bool in_core_dumps(const void *address)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    bool inside = false, flagged = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            inside = (uintptr_t)address >= from && (uintptr_t)address < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            flagged = strstr(line, " dd") != NULL;
    }
    if (file != NULL)
        fclose(file);
    return !flagged;
}

CHILD_TEST(core_dumps_hold_usable_memory_alone)
{
    start();
    void *address = NULL;
    require_result(slatei_os_reserve(16 * page, page, &address), 0);
    require(!in_core_dumps(address));
    require_result(slatei_os_commit((char *)address + 4 * page, 4 * page), 0);
    require(in_core_dumps((char *)address + 4 * page));
    require(!in_core_dumps((char *)address + 8 * page));
}

CHILD_TEST(reserve_is_aligned_and_unusable)
{
    start();
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        void *address = NULL;
        require_result(slatei_os_reserve(4 * page, alignment, &address), 0);
        require_equal((uintptr_t)address % alignment, 0);
        require_equal((uintptr_t)address % page, 0);
        const struct mapping_seen *seen = mapping_of(address);
        require(seen != NULL);
        require(!seen->usable);
        require_result(slatei_os_unmap(address, 4 * page), 0);
    }
}

CHILD_TEST(alignment_leaves_nothing_behind)
{
    SKIP_UNDER_TOOLS();
    start();
    (void)status_bytes("VmSize"); /* stdio's own memory first */
    size_t size = status_bytes("VmSize");
    for (unsigned i = 0; i < 20; i++) {
        void *address = mapped(8 * page, 64 * MIB);
        require_at_most(status_bytes("VmSize"), size + 8 * page);
        require_result(slatei_os_unmap(address, 8 * page), 0);
    }
    require_equal(status_bytes("VmSize"), size);
}

CHILD_TEST(commit_makes_usable_and_zero)
{
    start();
    void *address = NULL;
    require_result(slatei_os_reserve(16 * page, page, &address), 0);
    char *middle = (char *)address + 4 * page;
    require_result(slatei_os_commit(middle, 8 * page), 0);
    require(all_zero(middle, 8 * page));
    memset(middle, 7, 8 * page);
    require(mapping_of(middle)->usable);
    require(!mapping_of(address)->usable);
    require(!mapping_of(middle + 8 * page)->usable);
    /* Again, with what is new: the old contents stay. */
    require_result(slatei_os_commit(address, 16 * page), 0);
    require_equal(middle[page], 7);
    require(all_zero(address, 4 * page));
    require_result(slatei_os_unmap(address, 16 * page), 0);
}

CHILD_TEST(map_is_zero)
{
    start();
    for (size_t alignment = page; alignment <= 256 * MIB; alignment *= 4) {
        char *address = mapped(3 * page, alignment);
        require_equal((uintptr_t)address % alignment, 0);
        require(all_zero(address, 3 * page));
        memset(address, 1, 3 * page);
        require_result(slatei_os_unmap(address, 3 * page), 0);
    }
}

CHILD_TEST(discard_gives_back)
{
    start();
    char *address = mapped(8 * page, page);
    memset(address, 3, 8 * page);
    require_result(slatei_os_discard(address + 2 * page, 4 * page), 0);
    if (!RUNNING_ON_VALGRIND) {
        size_t resident = 0;
        require_result(slatei_os_resident(address, 8 * page, &resident), 0);
        require_equal(resident, 4 * page);
    }
    require(all_zero(address + 2 * page, 4 * page));
    require_equal(address[2 * page - 1], 3);
    require_equal(address[6 * page], 3);
    memset(address, 4, 8 * page);
    require_result(slatei_os_unmap(address, 8 * page), 0);
}

CHILD_TEST(resident_counts_pages)
{
    SKIP_IF(RUNNING_ON_VALGRIND, "Valgrind reads memory itself");
    start();
    /* More pages than are asked for at a time. */
    size_t pages = 1300, touched = 0;
    char *address = mapped(pages * page, page);
    require_result(slatei_os_advise_huge(address, pages * page, false), 0);
    size_t resident = 1;
    require_result(slatei_os_resident(address, pages * page, &resident), 0);
    require_equal(resident, 0);
    for (size_t i = 0; i < pages; i += 1 + i % 7, touched++)
        address[i * page + i] = 1;
    require_result(slatei_os_resident(address, pages * page, &resident), 0);
    require_equal(resident, touched * page);
    require_result(slatei_os_resident(address, 0, &resident), 0);
    require_equal(resident, 0);
    require_result(slatei_os_unmap(address, pages * page), 0);
}

CHILD_TEST(populate_brings_in)
{
    SKIP_IF(RUNNING_ON_VALGRIND, "Valgrind reads memory itself");
    start();
    char *address = mapped(8 * page, page);
    require_result(slatei_os_advise_huge(address, 8 * page, false), 0);
    errno = 77;
    slatei_os_populate(address + 2 * page, 4 * page);
    require_equal(errno, 77);
    size_t resident = 1;
    require_result(slatei_os_resident(address, 8 * page, &resident), 0);
    SKIP_IF(resident == 0, "this kernel has no MADV_POPULATE_WRITE");
    require_equal(resident, 4 * page);
    require(all_zero(address, 8 * page));
    require_result(slatei_os_unmap(address, 8 * page), 0);
}

CHILD_TEST(move_takes_the_contents)
{
    start();
    size_t size = 64 * page;
    char *from = mapped(size, page), *to = mapped(size, page);
    fill(from, size, 5);
    fill(to, size, 6);
    errno = ODD_ERRNO;
    int error = slatei_os_move(from, to, size);
    require_equal(errno, ODD_ERRNO);
    SKIP_IF(error == EINVAL && RUNNING_ON_VALGRIND, "Valgrind does not know MREMAP_DONTUNMAP");
    require_equal(error, 0);
    require(holds(to, size, size, 5));
    require(all_zero(from, size));
    memset(from, 1, size);
    require(holds(to, size, size, 5));
    require_result(slatei_os_unmap(from, size), 0);
    require_result(slatei_os_unmap(to, size), 0);
}

/* A mapping changes its length where it is while nothing is behind it, and moves as one. */
CHILD_TEST(mappings_change_their_size)
{
    size_t page = slatei_os_page_size();
    void *around, *to;
    require_equal(slatei_os_map(64 * page, page, &around), 0);
    char *start = around;
    require_equal(slatei_os_unmap(start + 32 * page, 32 * page), 0);
    fill(start, 32 * page, 1);
    require_equal(slatei_os_resize(start, 32 * page, 8 * page), 0);
    require_equal(slatei_os_resize(start, 8 * page, 16 * page), 0);
    require(holds(start, 32 * page, 8 * page, 1));
    require(all_zero(start + 8 * page, 8 * page));
    /* What is mapped behind it stands in the way: here the rest of it. */
    require(slatei_os_resize(start, 4 * page, 16 * page) != 0);
    require(holds(start, 32 * page, 8 * page, 1));
    require_equal(slatei_os_map(40 * page, page, &to), 0);
    require_equal(slatei_os_move_mapping(start, 16 * page, to, 40 * page), 0);
    require(holds(to, 32 * page, 8 * page, 1));
    /* Memcheck holds the end of a mapping that grows as it moves for unmapped. */
    if (!RUNNING_ON_VALGRIND)
        require(all_zero((char *)to + 8 * page, 32 * page));
    struct mapping_seen seen[512];
    size_t count = read_mappings(seen, 512);
    for (size_t i = 0; i < count && i < 512; i++)
        require(seen[i].end <= (uintptr_t)start || seen[i].start >= (uintptr_t)start + 16 * page);
    require_equal(slatei_os_unmap(to, 40 * page), 0);
}

CHILD_TEST(advice_shows_in_smaps)
{
    SKIP_UNDER_TOOLS();
    start();
    const char *reason = no_huge_pages();
    SKIP_IF(reason != NULL && strstr(reason, "no transparent") != NULL, reason);
    size_t huge = slatei_os_huge_page_size();
    char *address = mapped(4 * huge, huge);
    require_result(slatei_os_advise_huge(address, huge, false), 0);
    require_result(slatei_os_advise_huge(address + huge, 2 * huge, true), 0);
    require(mapping_of(address)->small && !mapping_of(address)->huge);
    require(mapping_of(address + huge)->huge && !mapping_of(address + huge)->small);
    require_equal(mapping_of(address + huge)->start, address + huge);
    require_equal(mapping_of(address + huge)->end, address + 3 * huge);
    require(!mapping_of(address + 3 * huge)->huge);
    require_result(slatei_os_unmap(address, 4 * huge), 0);
}

CHILD_TEST(huge_resident_agrees_with_smaps)
{
    SKIP_UNDER_TOOLS();
    start();
    SKIP_IF(no_huge_pages() != NULL, no_huge_pages());
    size_t huge = slatei_os_huge_page_size(), found = 1;
    char *address = mapped(8 * huge, huge);
    require_result(slatei_os_huge_resident(address, 8 * huge, &found), 0);
    require_equal(found, 0);
    require_result(slatei_os_advise_huge(address, huge, false), 0);
    require_result(slatei_os_advise_huge(address + huge, 7 * huge, true), 0);
    size_t fallbacks = huge_fallbacks();
    memset(address, 1, 4 * huge);
    require_result(slatei_os_huge_resident(address, 8 * huge, &found), 0);
    require_equal(found, mapping_of(address)->anon_huge + mapping_of(address + huge)->anon_huge);
    SKIP_IF(found == 0 && huge_fallbacks() != fallbacks, "the kernel has no huge page left");
    require_equal(found, 3 * huge);
    require_result(slatei_os_unmap(address, 8 * huge), 0);
}

CHILD_TEST(refusals)
{
    start();
    void *address = &page;
    size_t most = SIZE_MAX & ~(page - 1);
    require_refused(slatei_os_reserve(most, page, &address), ENOMEM);
    require_refused(slatei_os_reserve(most, GIB, &address), ENOMEM);
    require_refused(slatei_os_map(most, page, &address), ENOMEM);
    require_refused(slatei_os_map(most, GIB, &address), ENOMEM);
    require_equal(address, &page); /* not written to */
    char *gone = mapped(4 * page, page), *there = mapped(4 * page, page);
    require_result(slatei_os_unmap(gone, 4 * page), 0);
    require_refused(slatei_os_commit(gone, 4 * page), ENOMEM);
    require_refused(slatei_os_discard(gone, 4 * page), ENOMEM);
    require_refused(slatei_os_advise_huge(gone, 4 * page, false), ENOMEM);
    size_t resident = 0;
    require_refused(slatei_os_resident(gone, 4 * page, &resident), ENOMEM);
    require_result(slatei_os_unmap(there + 1, page), EINVAL);
    errno = ODD_ERRNO;
    require(slatei_os_move(gone, there, 4 * page) != 0);
    require_equal(errno, ODD_ERRNO);
}

CHILD_TEST(refused_by_a_limit)
{
    SKIP_UNDER_TOOLS();
    start();
    void *address = NULL;
    (void)status_bytes("VmSize");
    limit_growth(RLIMIT_AS, 64 * MIB);
    require_result(slatei_os_reserve(65 * MIB, page, &address), ENOMEM);
    require_result(slatei_os_reserve(32 * MIB, page, &address), 0);
    require_result(slatei_os_unmap(address, 32 * MIB), 0);
    /* The room for the alignment counts while it is looked for. */
    require_result(slatei_os_reserve(32 * MIB, 64 * MIB, &address), ENOMEM);
    require_result(slatei_os_reserve(56 * MIB, page, &address), 0);
}

int main(void)
{
    Suite *suite = suite_create("os");
    TCase *tests = only_case(suite);
    tcase_add_test(tests, sizes);
    tcase_add_test(tests, no_address_limit);
    tcase_add_test(tests, address_limit);
    tcase_add_test(tests, data_limit);
    tcase_add_test(tests, core_dumps_hold_usable_memory_alone);
    tcase_add_test(tests, reserve_is_aligned_and_unusable);
    tcase_add_test(tests, alignment_leaves_nothing_behind);
    tcase_add_test(tests, commit_makes_usable_and_zero);
    tcase_add_test(tests, map_is_zero);
    tcase_add_test(tests, discard_gives_back);
    tcase_add_test(tests, resident_counts_pages);
    tcase_add_test(tests, populate_brings_in);
    tcase_add_test(tests, move_takes_the_contents);
    tcase_add_test(tests, mappings_change_their_size);
    tcase_add_test(tests, advice_shows_in_smaps);
    tcase_add_test(tests, huge_resident_agrees_with_smaps);
    tcase_add_test(tests, refusals);
    tcase_add_test(tests, refused_by_a_limit);
    return run_suite(suite);
}
