#pragma once
// The state of a run, for people and for programs.

#include <string>

#include "elastic/control/run_status.h"

namespace holdfast {

/// A few lines and a table of workers, if there are any.
std::string StatusText(const RunStatus& status);
/// One JSON object: run, state, detail, world_size, generation, committed_step, total_steps, wanted_workers, missing,
/// workers_lost, lost_seconds, loss (null before the first step), tokens, tokens_per_second, steps_per_second, and
/// workers with id, rank, node, host, pid, step, phase, seconds_since_heartbeat, seconds_in_phase,
/// relative_compute_time, microbatches. On one line, or on many, for people.
std::string StatusJson(const RunStatus& status, bool on_one_line = false);

/// The last `count` lines of an events.jsonl, for people; empty if there is no such file.
std::string LastEvents(const std::string& path, int count);

}  // namespace holdfast
