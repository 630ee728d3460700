#pragma once
// The state of a run now, as `holdfast status` shows it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

enum class RunState : uint8_t {
  kWaitingForWorkers,
  kRecovering,
  kTraining,
  kFinishing,
  kEnded,
  kNotRunning,  // by its record: it has not ended, and nobody runs it; no coordinator says so
};
/// "waiting for workers"
const char* RunStateName(RunState state);
/// Nothing if no state has that name.
std::optional<RunState> RunStateOf(std::string_view name);

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

/// How far the members of a new world are with the checkpoint they load.
struct LoadProgress {
  double done_bytes = 0, total_bytes = 0;
};

/// What the run has done and lost so far, in all its lives.
struct RunFigures {
  std::string run{};                   // its name
  int64_t wanted_workers = 0;          // 0 = not known, as all of the following
  std::vector<std::string> missing{};  // of these, as far as they were here: "n1/0 on h2: connection lost"
  int64_t workers_lost = 0;            // but those of nodes that were told to leave
  double lost_seconds = 0;             // from a loss, or another trouble, to the next step
  double loss = 0;                     // of the last step of this life
  int64_t tokens = 0;
  double tokens_per_second = 0;  // of the last step
  double steps_per_second = 0;   // of late

  bool operator==(const RunFigures&) const = default;
};

struct RunStatus {
  RunState state = RunState::kWaitingForWorkers;
  std::string detail;  // why, e.g. "2 of at least 3 workers joined"
  uint64_t generation = 0;
  int world_size = 0;
  int64_t committed_step = 0, total_steps = 0;
  std::vector<WorkerStatus> workers;    // by rank, then those that wait
  std::vector<std::string> nodes{};     // that stay, as far as their agents are connected
  std::optional<LoadProgress> loading;  // while there is one, and they have said; told in `detail` to other processes
  RunFigures figures{};
  std::string leader{};  // who has the lock of the run's directory, as it stands there; empty = not known
};

}  // namespace holdfast
