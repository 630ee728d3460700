#pragma once
// What the files of a run say of it: when nobody runs it, or who does cannot be asked.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/control/run_event.h"
#include "elastic/control/run_status.h"
#include "framework/base/validation_result.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct RunEnding {
  std::optional<RunEvent> event;               // RunFinished, RunStopped or RunFailed, if it is the last
  std::optional<ValidationResult> validation;  // the last
  int64_t data_tokens = 0;                     // of a pass over the training data, as it was at last; 0: not recorded
  std::string data_digest = {};                // of all data, as they were at last; empty: not recorded
  int64_t checkpoint = 0;                      // step of the newest that was not given up; 0: there is none

  bool finished() const { return event.has_value() && std::holds_alternative<event::RunFinished>(*event); }
};
/// Checkpoints beyond `recorded_step` were given up, as by --resume STEP.
RunEnding ReadEnding(const RunDirectory& directory, int64_t recorded_step = std::numeric_limits<int64_t>::max());

/// The resolved config. Nothing is looked up: the digests and the loss of the weights it begins with are in it.
absl::StatusOr<Config> ReadRunConfig(const RunDirectory& directory);

/// Of a run that no process runs: the figures of the last step and of what was lost, without workers. State kEnded and
/// why; or kNotRunning, if events.jsonl does not end with that, and what to do.
absl::StatusOr<RunStatus> StatusAtTheEnd(const RunDirectory& directory);

/// Of a run that is alive and has no coordinator that listens, as one of one worker: by its last step, without workers.
/// Unavailable if its coordinator is going to listen.
absl::StatusOr<RunStatus> StatusByRecord(const RunDirectory& directory);

/// For a command that is given `directory` for that of a run: of what was not found there, where it holds a sweep, says
/// that. Any other status stays as it is.
absl::Status ExplainSweep(const absl::Status& status, const std::string& directory);
template <typename T>
absl::StatusOr<T> ExplainSweep(absl::StatusOr<T> value, const std::string& directory) {
  return value.ok() ? std::move(value) : ExplainSweep(value.status(), directory);
}

}  // namespace holdfast
