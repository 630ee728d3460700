#pragma once
// A coordinator and whoever watches its run, whatever carries its messages.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/coordinator/run_observer.h"

namespace holdfast {

class CoordinatorRuntime {
 public:
  /// `config`, `directory`, `port` and the keeper of `start` must outlive the runtime.
  static absl::StatusOr<std::unique_ptr<CoordinatorRuntime>> Create(const Config& config, const RunDirectory& directory,
                                                                    const RunStart& start, CoordinatorPort& port);
  /// Lets observers finish: alerts that are queued are delivered, for some seconds at most.
  ~CoordinatorRuntime();

  CoordinatorShell& shell() { return *shell_; }

 private:
  CoordinatorRuntime() = default;
  absl::Status AddObservers(const Config& config, const RunDirectory& directory, double worker_seconds);

  std::vector<std::unique_ptr<RunObserver>> observers_;
  std::unique_ptr<CoordinatorShell> shell_;  // calls the observers
};

}  // namespace holdfast
