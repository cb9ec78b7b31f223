/* replay_run.c - runs one (trace, allocator) in a child process: this program again, with the
 * allocator preloaded.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE 1
#include "replay_run.h"

#include "launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Says in `what` why a child that ended with `status` did not finish. */
static void describe_failure(const struct replay_result *result, const char *path, bool as_regions,
                             int status, char *what, size_t room)
{
    uint64_t record = result->word ? replay_record_at(path, as_regions, result->word) : 0;
    switch (result->status) {
    case REPLAY_CHANGED:
        snprintf(what, room,
                 "record %" PRIu64 ": block at 0x%" PRIx64 " of %" PRIu64 " bytes changed", record,
                 result->address, result->size);
        return;
    case REPLAY_NOT_ZERO:
        snprintf(what, room,
                 "record %" PRIu64 ": block at 0x%" PRIx64 " of %" PRIu64 " bytes is not all zero",
                 record, result->address, result->size);
        return;
    case REPLAY_MISALIGNED:
        snprintf(what, room, "record %" PRIu64 ": block at 0x%" PRIx64 " is not aligned as asked",
                 record, result->address);
        return;
    case REPLAY_NO_MEMORY:
        snprintf(what, room, "record %" PRIu64 ": no memory for %" PRIu64 " bytes", record,
                 result->size);
        return;
    case REPLAY_NOT_PRELOADED:
        snprintf(what, room, "its library was not loaded or has no malloc (malloc is %s's)",
                 result->version);
        return;
    case REPLAY_SETUP_FAILED:
        snprintf(what, room, "set-up failed: %s", strerror(result->error));
        return;
    default:
        break;
    }
    launch_describe_end(status, what, room);
}

int replay_run(const struct replay_trace *trace, const char *path, const char *name,
               const struct replay_allocator *allocator, bool check_all,
               struct replay_result *result, char *message, size_t room)
{
    char what[400] = "";
    int status = 0;
    const char *const arguments[] = {"replay-child", launch_kind(allocator), check_all ? "1" : "0",
                                     allocator->library, NULL};
    if (launch_child(allocator, arguments, trace->file, result, sizeof *result, &status) < 0) {
        snprintf(what, sizeof what, "the child could not be started: %s", strerror(errno));
    } else {
        result->version[sizeof result->version - 1] = '\0';
        if (result->status != REPLAY_DONE || status != 0)
            describe_failure(result, path, trace->as_regions, status, what, sizeof what);
    }
    if (!what[0])
        return 0;
    snprintf(message, room, "trace %s, allocator %s: %s", name, allocator->label, what);
    return -1;
}
