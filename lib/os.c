/* lib/os.c - the only file that calls the kernel for memory.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Set by slatei_os_start; every call sets the same. */
static size_t page_size = 4096;
static size_t huge_page_size = (size_t)2 << 20;
static size_t address_limit = SIZE_MAX;

static __attribute__((unused)) size_t read_number(const char *path)
{
    char text[32];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text);
    close(file);
    size_t number = 0;
    for (ssize_t i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (size_t)(text[i] - '0');
    return number;
}

void slatei_os_start(void)
{
    int saved = errno;
    long page = sysconf(_SC_PAGESIZE);
    if (page > 0)
        page_size = (size_t)page;
#if defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
    /* A page of page table holds entries of 8 bytes.  Reading the file below takes longer than the
     * rest of the start. */
    huge_page_size = page_size * (page_size / 8);
#else
    size_t huge = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    if (huge >= page_size && (huge & (huge - 1)) == 0)
        huge_page_size = huge;
#endif
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        address_limit = limit.rlim_cur;
    errno = saved;
}

size_t slatei_os_page_size(void) { return page_size; }

size_t slatei_os_huge_page_size(void) { return huge_page_size; }

size_t slatei_os_address_limit(void) { return address_limit; }

bool slatei_os_data_limited(void)
{
    int saved = errno;
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    errno = saved;
    return limited;
}

/* The error number of a call that answered `failed`, with errno put back. */
static int result(bool failed, int saved)
{
    int error = failed ? errno : 0;
    errno = saved;
    return error;
}

/* `keep_slack`: what is taken beside the aligned range may stay taken, where address space is free:
 * that saves system calls at the start. */
static int map_aligned(size_t size, size_t alignment, int protection, bool keep_slack,
                       void **address)
{
    int saved = errno;
    size_t slack = alignment > page_size ? alignment - page_size : 0;
    if (size > SIZE_MAX - slack)
        return ENOMEM;
    char *start =
        mmap(NULL, size + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return result(true, saved);
    char *aligned = (char *)(((uintptr_t)start + alignment - 1) & ~(uintptr_t)(alignment - 1));
    size_t before = (size_t)(aligned - start);
    if (before != 0 && !keep_slack)
        munmap(start, before);
    if (slack != before && !keep_slack)
        munmap(aligned + size, slack - before);
    errno = saved;
    *address = aligned;
    return 0;
}

int slatei_os_reserve(size_t size, size_t alignment, void **address)
{
    int saved = errno;
    int error = map_aligned(size, alignment, PROT_NONE, address_limit == SIZE_MAX, address);
    /* The kernel leaves untouched memory out of a core dump, debuggers do not. */
    if (error == 0)
        madvise(*address, size, MADV_DONTDUMP);
    errno = saved;
    return error;
}

int slatei_os_map(size_t size, size_t alignment, void **address)
{
    return map_aligned(size, alignment, PROT_READ | PROT_WRITE, false, address);
}

int slatei_os_unmap(void *address, size_t size)
{
    int saved = errno;
    return result(munmap(address, size) != 0, saved);
}

int slatei_os_commit(void *address, size_t size)
{
    int saved = errno;
    int error = result(mprotect(address, size, PROT_READ | PROT_WRITE) != 0, saved);
    if (error == 0)
        madvise(address, size, MADV_DODUMP);
    errno = saved;
    return error;
}

int slatei_os_discard(void *address, size_t size)
{
    int saved = errno;
    return result(madvise(address, size, MADV_DONTNEED) != 0, saved);
}

int slatei_os_advise_huge(void *address, size_t size, bool huge)
{
    int saved = errno;
    int error = result(madvise(address, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0, saved);
    return error == EINVAL ? 0 : error;
}

void slatei_os_populate(void *address, size_t size)
{
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
    int saved = errno;
    madvise(address, size, MADV_POPULATE_WRITE);
    errno = saved;
}

/* A move to a fixed place unmaps that before it may fail: Linux before 6.17 refuses to move what
 * consists of several mappings only then. */
static int moved_to(void *moved, void *to, size_t size, int saved)
{
    int error = result(moved == MAP_FAILED, saved);
    if (error == 0)
        return 0;
    void *again = mmap(to, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return result(again == MAP_FAILED, saved) == 0 ? error : ENOTRECOVERABLE;
}

int slatei_os_move(void *from, void *to, size_t size)
{
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
    int saved = errno;
    void *moved = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    return moved_to(moved, to, size, saved);
}

int slatei_os_resize(void *address, size_t old_size, size_t size)
{
    int saved = errno;
    return result(mremap(address, old_size, size, 0) == MAP_FAILED, saved);
}

int slatei_os_move_mapping(void *address, size_t old_size, void *to, size_t size)
{
    int saved = errno;
    void *moved = mremap(address, old_size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    return moved_to(moved, to, size, saved);
}

int slatei_os_resident(const void *address, size_t size, size_t *resident)
{
    int saved = errno;
    unsigned char present[512];
    const char *at = address;
    size_t pages = 0;
    for (size_t left = size / page_size; left != 0;) {
        size_t step = left < sizeof present ? left : sizeof present;
        if (mincore((void *)(uintptr_t)at, step * page_size, present) != 0)
            return result(true, saved);
        for (size_t i = 0; i < step; i++)
            pages += present[i] & 1;
        at += step * page_size;
        left -= step;
    }
    errno = saved;
    *resident = pages * page_size;
    return 0;
}

/* Reads a file line by line without a heap. */
struct reader {
    int file;
    size_t at, length;
    char text[1024];
};

static bool next_line(struct reader *reader, char *line, size_t room)
{
    size_t used = 0;
    for (;;) {
        if (reader->at == reader->length) {
            ssize_t got = read(reader->file, reader->text, sizeof reader->text);
            if (got <= 0)
                return false;
            reader->at = 0;
            reader->length = (size_t)got;
        }
        char c = reader->text[reader->at++];
        if (c == '\n')
            break;
        if (used + 1 < room)
            line[used++] = c;
    }
    line[used] = '\0';
    return true;
}

static uintptr_t read_hexadecimal(const char *text, const char **end)
{
    uintptr_t number = 0;
    for (;; text++) {
        unsigned digit;
        if (*text >= '0' && *text <= '9')
            digit = (unsigned)(*text - '0');
        else if (*text >= 'a' && *text <= 'f')
            digit = (unsigned)(*text - 'a') + 10;
        else
            break;
        number = number << 4 | digit;
    }
    *end = text;
    return number;
}

int slatei_os_huge_resident(const void *address, size_t size, size_t *huge)
{
    int saved = errno;
    struct reader reader = {.at = 0};
    *huge = 0;
    reader.file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (reader.file < 0)
        return result(true, saved);
    static const char field[] = "AnonHugePages:";
    char line[128];
    bool inside = false;
    while (next_line(&reader, line, sizeof line)) {
        const char *end;
        uintptr_t start = read_hexadecimal(line, &end);
        if (end != line && *end == '-') {
            inside = start - (uintptr_t)address < size;
        } else if (inside && strncmp(line, field, sizeof field - 1) == 0) {
            size_t kilobytes = 0;
            for (const char *at = line + sizeof field - 1; *at != '\0'; at++)
                if (*at >= '0' && *at <= '9')
                    kilobytes = kilobytes * 10 + (size_t)(*at - '0');
            *huge += kilobytes << 10;
        }
    }
    close(reader.file);
    errno = saved;
    return 0;
}
