/* output.c - result files: written beside their place, then renamed.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "output.h"

#include "commands.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool output_is_possible(const char *path)
{
    struct stat target;
    char *copy = strdup(path);
    const char *why = NULL;
    if (!copy)
        why = "out of memory";
    else if (stat(path, &target) == 0 && !S_ISREG(target.st_mode))
        why = "it is there and no plain file";
    else if (access(dirname(copy), W_OK | X_OK) != 0)
        why = strerror(errno);
    if (why)
        complain("%s: cannot be written: %s", path, why);
    free(copy);
    return !why;
}

/* Returns -1, with nothing left behind. */
static int give_up(struct output *output, int error, int descriptor)
{
    complain("%s: cannot be written: %s", output->path, strerror(error));
    if (descriptor >= 0)
        unlink(output->temporary);
    free(output->temporary);
    return -1;
}

int output_begin(struct output *output, const char *path)
{
    *output = (struct output){.path = path};
    if (asprintf(&output->temporary, "%s.XXXXXX", path) < 0) {
        output->temporary = NULL;
        return give_up(output, ENOMEM, -1);
    }
    int descriptor = mkstemp(output->temporary);
    if (descriptor >= 0)
        output->file = fdopen(descriptor, "w");
    if (output->file)
        return 0;
    int error = errno;
    if (descriptor >= 0)
        close(descriptor);
    return give_up(output, error, descriptor);
}

int output_end(struct output *output, bool good)
{
    mode_t mask = umask(0);
    umask(mask);
    int descriptor = fileno(output->file);
    good = good && fflush(output->file) == 0 && !ferror(output->file) &&
           fchmod(descriptor, 0666 & ~mask) == 0;
    int error = errno;
    if (fclose(output->file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good && rename(output->temporary, output->path) != 0) {
        error = errno;
        good = false;
    }
    if (!good)
        return give_up(output, error, descriptor);
    free(output->temporary);
    return 0;
}

int output_write_json(json_t *value, const char *path)
{
    struct output output;
    if (output_begin(&output, path) < 0) {
        json_decref(value);
        return -1;
    }
    bool good = json_dumpf(value, output.file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
                fputc('\n', output.file) != EOF;
    json_decref(value);
    return output_end(&output, good);
}
