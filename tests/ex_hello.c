/* ex_hello.c - the smallest program: a list of words, each a block of its own.
 *
 * SPDX-License-Identifier: MIT
 *
 *     cc ex_hello.c $(pkg-config --cflags --libs slate)
 */
#include <slate.h>

#include <stdio.h>
#include <string.h>

struct word {
    struct word *next;
    char text[];
};

int main(void)
{
    static const char *const texts[] = {"slate", "from", "hello"};
    struct word *first = NULL;
    for (unsigned i = 0; i < 3; i++) {
        size_t length = strlen(texts[i]) + 1;
        struct word *word = slate_alloc(sizeof *word + length);
        if (word == NULL) {
            perror("slate_alloc");
            return 1;
        }
        memcpy(word->text, texts[i], length);
        word->next = first;
        first = word;
    }
    while (first != NULL) {
        struct word *next = first->next;
        printf("%s%s", first->text, next != NULL ? " " : "\n");
        slate_free(first);
        first = next;
    }
    return 0;
}
