#pragma once
// A run of several workers on this machine, in processes that this one starts and supervises: it is their coordinator
// and agent.

#include <memory>
#include <stop_token>
#include <string>

#include "elastic/launch/launcher.h"

namespace holdfast {

class LocalLauncher final : public Launcher {
 public:
  static constexpr const char* kThisBinary = "/proc/self/exe";

  /// config.elastic.workers of them. `binary`: that has the command `worker`.
  static absl::StatusOr<std::unique_ptr<LocalLauncher>> Open(const Config& config, const RunDirectory& directory,
                                                             std::string binary = kThisBinary,
                                                             const std::stop_token& stop = {});

  /// If no worker can be started at all, the run ends: exit code 1 and what the agent says.
  absl::StatusOr<CoordinatorShell::Outcome> Run(const PreparedRun& run, const StopSignal& stop) override;

 private:
  LocalLauncher(const Config& config, const RunDirectory& directory, TrainingOutline outline, std::string binary)
      : Launcher(config, directory, std::move(outline)), binary_(std::move(binary)) {}

  const std::string binary_;
};

}  // namespace holdfast
