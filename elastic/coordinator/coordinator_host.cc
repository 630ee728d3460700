#include "elastic/coordinator/coordinator_host.h"

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<CoordinatorHost>> CoordinatorHost::Create(const Config& config,
                                                                         const RunDirectory& directory,
                                                                         const RunStart& start, CoordinatorPort& port) {
  std::unique_ptr<CoordinatorHost> host(new CoordinatorHost());
  ASSIGN_OR_RETURN(host->alerts_, RunAlerts::Create(config, [&host = *host](const RunEvent& event) {
                     if (host.shell_ != nullptr) host.shell_->Report(event);
                   }));
  ASSIGN_OR_RETURN(host->shell_, CoordinatorShell::Create(
                                     config, directory, start, port,
                                     [&alerts = *host->alerts_](const RunEvent& event) { alerts.OnEvent(event); }));
  return host;
}

CoordinatorHost::~CoordinatorHost() {
  if (alerts_ != nullptr) alerts_->Finish();
}

}  // namespace holdfast
