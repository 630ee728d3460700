#pragma once
// What one worker needs to train, from a config: data, device, model, trainer.

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/control/control_link.h"
#include "elastic/worker/stop_signal.h"
#include "elastic/worker/worker.h"
#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/data/tokenizer.h"
#include "framework/metrics/run_directory.h"
#include "framework/train/trainer.h"
#include "models/language_model.h"

namespace holdfast {

/// In order of construction.
struct TrainingSession {
  int gpu = 0, workers_on_gpu = 1;  // if it is on one
  std::optional<Dataset> training, validation;
  std::unique_ptr<Device> device;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Trainer> trainer;
};

/// FailedPrecondition if `workers_here`, which share this machine, have too few GPUs for their transport: NCCL refuses
/// two workers on one, but only when all have connected.
absl::Status CheckGpus(const Config& config, int64_t workers_here);

/// `workers_here`: how many workers share this machine's memory. `local_index`: which of them this is. `check_only`:
/// everything is checked, but there is no trainer.
absl::StatusOr<std::unique_ptr<TrainingSession>> OpenTrainingSession(const Config& config, int64_t workers_here,
                                                                     bool check_only = false, int64_t local_index = 0);

struct WorkerIdentity {
  std::string name = "local/0", node = "local";
  std::string host = "127.0.0.1";  // where other workers reach it
};

/// How the workers of a run reach each other, if not by Gloo.
struct WorkerPeers {
  ConnectFn connect = nullptr;
  std::function<void(const absl::Status& status, std::stop_token stop)> on_failure = nullptr;
};

/// Joins the coordinator behind `link` and works until the run is over. A stop asked of this process is passed on to
/// the coordinator, for the whole run; null: somebody else does so.
Worker::Exit RunWorker(const Config& config, const RunDirectory& directory, const WorkerIdentity& identity,
                       TrainingSession& session, ControlLink& link, const StopSignal* stop_signal = nullptr,
                       const WorkerPeers& peers = {});

}  // namespace holdfast
