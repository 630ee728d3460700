#pragma once
// One worker of a run, from a runtime and a link to the coordinator to its exit.

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "elastic/control/control_link.h"
#include "elastic/worker/stop_signal.h"
#include "elastic/worker/worker.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"
#include "models/runtime/training_runtime.h"

namespace holdfast {

struct WorkerIdentity {
  std::string name = "local/0", node = "local";
  std::string host = "127.0.0.1";  // where other workers reach it
  uint64_t run = 0;                // JoinMessage::run
  bool is_alone = false;           // started by hand: SessionShell::Options
};

/// How the workers of a run reach each other, if not as parallel.transport says.
struct WorkerPeers {
  ConnectFn connect = nullptr;
  bool connects_alone = false;  // WorkerDependencies
  std::function<void(const absl::Status& status, std::stop_token stop)> on_failure = nullptr;
};

/// Joins the coordinator behind `link` and works until the run is over. A stop asked of this process is passed on to
/// the coordinator, for the whole run; null: somebody else does so.
Worker::Exit RunWorker(const Config& config, const RunDirectory& directory, const WorkerIdentity& identity,
                       TrainingRuntime& runtime, ControlLink& link, const StopSignal* stop_signal = nullptr,
                       const WorkerPeers& peers = {});

}  // namespace holdfast
