/* commands.h - the subcommands of the slate program, a file each, and what they share.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SLATE_COMMANDS_H
#define SLATE_COMMANDS_H

/* Exit codes of the program. */
enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Each takes the arguments from its own name on (argv[0]) and returns the program's exit code. */
int command_bench(int argc, char **argv);
int command_bench_child(int argc, char **argv);
int command_real(int argc, char **argv);
int command_real_child(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_replay_child(int argc, char **argv);
int command_run(int argc, char **argv);
int command_stat(int argc, char **argv);

/* One line on stderr: "slate: " and the text. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

#endif
