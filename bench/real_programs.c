/* real_programs.c - the programs that `slate real` runs.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct real_program *add(struct real_programs *programs)
{
    struct real_program *items =
        realloc(programs->items, (programs->count + 1) * sizeof *programs->items);
    if (!items)
        return NULL;
    programs->items = items;
    memset(&items[programs->count], 0, sizeof *items);
    return &items[programs->count++];
}

/* Whether the word sets a variable, as before a command in a shell. */
static bool is_setting(const char *word)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    size_t length = strspn(word, letters);
    return length > 0 && (word[0] < '0' || word[0] > '9') && word[length] == '=';
}

/* Takes a line apart; it becomes the program's.  Returns NULL, or what is wrong. */
static const char *parse_line(struct real_programs *programs, char *line)
{
    size_t fields = 1;
    for (const char *at = line; *at; at++)
        fields += *at == '\t';
    struct real_program *program = add(programs);
    /* One NULL behind the settings and one behind the command. */
    char **words = program ? calloc(fields + 2, sizeof *words) : NULL;
    if (!words) {
        free(line);
        return "out of memory";
    }
    program->line = line;
    program->words = words;
    if (fields < 4)
        return "name, check, directory and command are wanted, separated by tabs";
    program->name = strsep(&line, "\t");
    program->check = strsep(&line, "\t");
    program->directory = strsep(&line, "\t");
    if (!*program->name || strlen(program->name) > 63)
        return "a name has 1 to 63 bytes";
    if (strcmp(program->check, "-") != 0 && strcmp(program->check, "stdout") != 0 &&
        program->check[0] != '/')
        return "to be checked is \"-\", \"stdout\" or a file's whole path";
    if (program->directory[0] != '/')
        return "the directory is no whole path";
    for (size_t i = 0; i + 1 < programs->count; i++)
        if (strcmp(programs->items[i].name, program->name) == 0)
            return "a program of that name was there before";
    program->settings = words;
    while (line && is_setting(line))
        *words++ = strsep(&line, "\t");
    program->command = ++words;
    while (line)
        *words++ = strsep(&line, "\t");
    return program->command[0] && *program->command[0] ? NULL : "the command is missing";
}

int real_read_programs(const char *path, struct real_programs *programs, char *message, size_t room)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t space = 0, number = 0;
    const char *wrong = NULL;
    if (!file) {
        snprintf(message, room, "%s: %s", path, strerror(errno));
        return -1;
    }
    while (!wrong && getline(&line, &space, file) >= 0) {
        number++;
        line[strcspn(line, "\n")] = '\0';
        if (!*line || *line == '#')
            continue;
        wrong = parse_line(programs, line);
        line = NULL;
        space = 0;
    }
    if (!wrong && ferror(file))
        wrong = strerror(errno);
    else if (!wrong && programs->count == 0)
        wrong = "no program";
    free(line);
    fclose(file);
    if (!wrong)
        return 0;
    snprintf(message, room, "%s: line %zu: %s", path, number, wrong);
    return -1;
}

int real_one_program(char **command, struct real_programs *programs)
{
    static char nothing[] = "-";
    static char *no_settings[] = {NULL};
    struct real_program *program = add(programs);
    if (!program)
        return -1;
    char *slash = strrchr(command[0], '/');
    program->name = slash ? slash + 1 : command[0];
    program->check = nothing;
    program->settings = no_settings;
    program->command = command;
    return 0;
}

void real_free_programs(struct real_programs *programs)
{
    for (size_t i = 0; i < programs->count; i++) {
        free(programs->items[i].line);
        free(programs->items[i].words);
    }
    free(programs->items);
}
