/* replay_json.c - all runs of a replay, and the machine they ran on, as JSON.
 *
 * SPDX-License-Identifier: MIT
 */
#include "machine.h"
#include "output.h"
#include "replay_report.h"

static json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("?");
}

static json_t *json_run(const struct replay_result *run)
{
    return json_pack("{s:f,s:f,s:f,s:I,s:I,s:I,s:I}", "wall_s", run->wall_seconds, "user_s",
                     run->user_seconds, "sys_s", run->system_seconds, "rss_kb",
                     (json_int_t)run->resident_kb, "minor_faults", (json_int_t)run->minor_faults,
                     "anon_huge_kb", (json_int_t)run->anonymous_huge_kb, "page_table_kb",
                     (json_int_t)run->page_table_kb);
}

/* An allocator that failed on a trace has no entry for it. */
static json_t *json_results(const struct replay_report *report)
{
    json_t *results = json_array();
    for (size_t trace = 0; trace < report->trace_count; trace++) {
        for (size_t i = 0; i < report->allocators->count; i++) {
            if (*replay_failed(report, trace, i))
                continue;
            json_t *runs = json_array();
            for (int run = 0; run < report->runs; run++)
                json_array_append_new(runs, json_run(&replay_runs(report, trace, i)[run]));
            json_t *result = json_object();
            json_object_set_new(result, "trace", json_text(report->trace_names[trace]));
            json_object_set_new(result, "allocator", json_text(report->allocators->items[i].label));
            json_object_set_new(result, "runs", runs);
            json_array_append_new(results, result);
        }
    }
    return results;
}

int replay_write_json(const struct replay_report *report, const char *path)
{
    json_t *all = json_object();
    json_object_set_new(all, "machine", machine_json(report->allocators, report->versions));
    json_object_set_new(all, "results", json_results(report));
    return output_write_json(all, path);
}
