#pragma once
// What the coordinator tells people: events for events.jsonl, and the state of the run now.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

/// One line of events.jsonl. Names and fields are listed in elastic/control/README.md.
struct RunEvent {
  using Value = std::variant<int64_t, double, std::string>;
  std::string name;  // "worker_lost"
  std::vector<std::pair<std::string, Value>> fields;
};

struct WorkerStatus {
  WorkerId id;
  int rank = -1;  // -1: connected, not in the world
  std::string node, host;
  int64_t pid = 0;
  int64_t step = 0;
  Phase phase = Phase::kStarting;
  double seconds_since_heartbeat = 0;
  double seconds_in_phase = 0;       // since progress was last reported
  double relative_compute_time = 0;  // per microbatch, against the median of the ranks; 0 = not known yet
  int64_t microbatches = 0;
};

struct RunStatus {
  std::string state;   // "waiting for workers", "recovering", "training", "finishing", "ended"
  std::string detail;  // why, e.g. "2 of at least 3 workers have joined"
  uint64_t generation = 0;
  int world_size = 0;
  int64_t committed_step = 0, total_steps = 0;
  std::vector<WorkerStatus> workers;  // by rank, then those that wait
};

}  // namespace holdfast
