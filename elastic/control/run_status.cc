#include "elastic/control/run_status.h"

namespace holdfast {

const char* RunStateName(RunState state) {
  switch (state) {
    case RunState::kWaitingForWorkers:
      return "waiting for workers";
    case RunState::kRecovering:
      return "recovering";
    case RunState::kTraining:
      return "training";
    case RunState::kFinishing:
      return "finishing";
    case RunState::kEnded:
      return "ended";
    case RunState::kNotRunning:
      return "not running";
  }
  return "unknown";
}

std::optional<RunState> RunStateOf(std::string_view name) {
  for (const RunState state : {RunState::kWaitingForWorkers, RunState::kRecovering, RunState::kTraining,
                               RunState::kFinishing, RunState::kEnded, RunState::kNotRunning}) {
    if (name == RunStateName(state)) return state;
  }
  return std::nullopt;
}

}  // namespace holdfast
