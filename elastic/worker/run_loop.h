#pragma once
// The life of a run in one worker: step, commit, record, validate, save. What a run is made of comes in from outside,
// so the loop reads as the story of a run and nothing else.

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/worker/run_console.h"
#include "framework/config/config.h"
#include "framework/data/loader.h"
#include "framework/metrics/run_directory.h"
#include "framework/train/trainer.h"

namespace holdfast {

/// Everything a run needs; all of it outlives the loop.
struct RunParts {
  const Config* config = nullptr;
  Trainer* trainer = nullptr;
  Loader* loader = nullptr;
  const Dataset* validation = nullptr;  // null = none
  RunDirectory* directory = nullptr;
  RunConsole* console = nullptr;
  std::function<absl::Status()> save_model;  // writes the model of the last committed step
};

struct RunOutcome {
  int64_t steps = 0;     // committed
  bool stopped = false;  // before the last step, because a stop was requested
  std::optional<double> validation_loss;
};

/// Runs steps until config.train.steps or a stop, then validates (not when stopped) and saves the model. On an error of
/// a step the model of the last committed step is saved as well, if that is possible.
absl::StatusOr<RunOutcome> RunTraining(const RunParts& parts, std::stop_token stop);

}  // namespace holdfast
