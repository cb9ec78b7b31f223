/* lib/report.c - messages without a heap: a line on the stack, written with one call.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#ifdef SLATEI_DEBUG
#include <stdlib.h>
#endif
#include <string.h>
#include <unistd.h>

void slatei_line_text(struct slatei_line *line, const char *text)
{
    size_t length = strlen(text);
    size_t room = sizeof line->text - line->length;
    if (length > room)
        length = room;
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

void slatei_line_column(struct slatei_line *line, uint64_t number, unsigned width)
{
    char digits[24];
    char *first = digits + sizeof digits - 1;
    *first = '\0';
    unsigned used = 0;
    do {
        *--first = (char)('0' + number % 10);
        number /= 10;
        used++;
    } while (number != 0);
    for (; used < width; used++)
        slatei_line_text(line, " ");
    slatei_line_text(line, first);
}

void slatei_line_number(struct slatei_line *line, uint64_t number)
{
    slatei_line_column(line, number, 0);
}

void slatei_line_address(struct slatei_line *line, const void *address)
{
    char digits[2 + 2 * sizeof address + 1];
    char *first = digits + sizeof digits - 1;
    *first = '\0';
    uintptr_t number = (uintptr_t)address;
    do {
        *--first = "0123456789abcdef"[number & 15];
        number >>= 4;
    } while (number != 0);
    *--first = 'x';
    *--first = '0';
    slatei_line_text(line, first);
}

void slatei_line_bytes(struct slatei_line *line, uint64_t bytes)
{
    static const struct {
        unsigned shift;
        const char *name;
    } units[] = {{40, " TiB"}, {30, " GiB"}, {20, " MiB"}, {10, " KiB"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint64_t unit = UINT64_C(1) << units[i].shift;
        if (bytes >= unit && bytes % unit == 0) {
            slatei_line_number(line, bytes >> units[i].shift);
            slatei_line_text(line, units[i].name);
            return;
        }
    }
    slatei_line_number(line, bytes);
    slatei_line_text(line, " bytes");
}

void slatei_line_print(struct slatei_line *line)
{
    int saved = errno;
    if (line->length == sizeof line->text)
        line->length--;
    line->text[line->length++] = '\n';
    for (size_t done = 0; done < line->length;) {
        ssize_t wrote = write(STDERR_FILENO, line->text + done, line->length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break; /* there is nobody left to tell */
        done += (size_t)wrote;
    }
    line->length = 0;
    errno = saved;
}

void slatei_report(const char *text, ...)
{
    struct slatei_line line = {0};
    slatei_line_text(&line, "slate: ");
    va_list texts;
    va_start(texts, text);
    for (; text != NULL; text = va_arg(texts, const char *))
        slatei_line_text(&line, text);
    va_end(texts);
    slatei_line_print(&line);
}

bool slatei_report_first(atomic_bool *once)
{
    return !atomic_exchange_explicit(once, true, memory_order_relaxed);
}

#ifdef SLATEI_DEBUG
void slatei_assert_failed(const char *condition, const char *file, unsigned line)
{
    struct slatei_line text = {0};
    slatei_line_text(&text, "slate: ");
    slatei_line_text(&text, file);
    slatei_line_text(&text, ":");
    slatei_line_number(&text, line);
    slatei_line_text(&text, ": does not hold: ");
    slatei_line_text(&text, condition);
    slatei_line_print(&text);
    abort();
}
#endif
