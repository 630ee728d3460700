#pragma once
// A run of one worker, in this process.

#include <memory>
#include <stop_token>

#include "elastic/launch/launcher.h"

namespace holdfast {

class InProcessLauncher final : public Launcher {
 public:
  static absl::StatusOr<std::unique_ptr<InProcessLauncher>> Open(const Config& config, const RunDirectory& directory,
                                                                 const std::stop_token& stop = {});

  absl::StatusOr<CoordinatorShell::Outcome> Run(const PreparedRun& run, const StopSignal& stop) override;

 private:
  InProcessLauncher(const Config& config, const RunDirectory& directory, std::unique_ptr<TrainingRuntime> runtime)
      : Launcher(config, directory, OutlineOf(*runtime)), runtime_(std::move(runtime)) {}

  std::unique_ptr<TrainingRuntime> runtime_;
};

}  // namespace holdfast
