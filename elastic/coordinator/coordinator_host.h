#pragma once
// A coordinator and its alerts, whatever carries its messages.

#include <memory>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/coordinator/run_alerts.h"

namespace holdfast {

class CoordinatorHost {
 public:
  /// `config`, `directory`, `port` and the keeper of `start` must outlive the host.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Create(const Config& config, const RunDirectory& directory,
                                                                 const RunStart& start, CoordinatorPort& port);
  /// Delivers the alerts that are queued, for some seconds at most.
  ~CoordinatorHost();

  CoordinatorShell& shell() { return *shell_; }

 private:
  CoordinatorHost() = default;

  std::unique_ptr<RunAlerts> alerts_;  // reports failures to the shell
  std::unique_ptr<CoordinatorShell> shell_;
};

}  // namespace holdfast
