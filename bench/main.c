/* main.c - the slate program: finds the subcommand and hands over to it.
 *
 * SPDX-License-Identifier: MIT
 */
#include "commands.h"

#include <slate.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    const char *help; /* one line; NULL: not shown */
    int (*function)(int argc, char **argv);
};

static const struct command commands[] = {
    {"bench", "compare allocators in small operations", command_bench},
    {"real", "compare allocators on whole programs", command_real},
    {"replay", "compare allocators on recorded traces", command_replay},
    {"run", "run a command with slate in malloc's place", command_run},
    {"stat", "describe recorded traces", command_stat},
    {"bench-child", NULL, command_bench_child},
    {"real-child", NULL, command_real_child},
    {"replay-child", NULL, command_replay_child},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("slate: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static int help(void)
{
    puts("usage: slate COMMAND [OPTION]... [ARGUMENT]...\n"
         "       slate --version | --help | --help-tunables\n"
         "\n"
         "Commands (slate COMMAND --help says more):");
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (commands[i].help)
            printf("  %-10s %s\n", commands[i].name, commands[i].help);
    return EXIT_GOOD;
}

static int help_tunables(void)
{
    size_t count;
    const struct slate_tunable *tunables = slate_tunables(&count);
    for (size_t i = 0; i < count; i++)
        printf("%s (%s)\n    %s\n    allowed: %s; default: %s\n", tunables[i].name,
               tunables[i].unit, tunables[i].help, tunables[i].range, tunables[i].default_value);
    return EXIT_GOOD;
}

/* Output that could not be written must not look like success. */
static int finish(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_GOOD) {
        complain("the output could not be written");
        return EXIT_FAILED;
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        complain("a command is missing; slate --help lists them");
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return finish(help());
    if (strcmp(name, "--help-tunables") == 0)
        return finish(help_tunables());
    if (strcmp(name, "--version") == 0) {
        printf("slate %s\n", slate_version());
        return finish(EXIT_GOOD);
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return finish(commands[i].function(argc - 1, argv + 1));
    complain("unknown command \"%s\"; slate --help lists them", name);
    return EXIT_USAGE;
}
