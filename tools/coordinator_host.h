#pragma once
// A coordinator that workers of other processes reach: shell, server and alerts in one place.

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/wire/control_server.h"
#include "tools/prepared_run.h"
#include "tools/run_alerts.h"

namespace holdfast {

class CoordinatorHost final : public ControlHandler, public CoordinatorPort {
 public:
  /// Listens, and notes the address in the run directory. `config`, `directory` and `run` must outlive the
  /// host.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Start(const Config& config, const RunDirectory& directory,
                                                                const PreparedRun& run,
                                                                const ControlServerOptions& options);
  ~CoordinatorHost() override;

  const std::string& address() const { return server_->address(); }
  CoordinatorShell& shell() { return *shell_; }
  /// Waits for the end of the run, and until everybody has been told.
  CoordinatorShell::Outcome Wait();

  void OnMessage(Connection from, WorkerMessage message) override;
  void OnDisconnect(Connection connection, std::string cause) override { shell_->OnDisconnect(connection, cause); }
  RunStatus StatusNow() override { return shell_->StatusNow(); }

  void Send(Connection to, const CoordinatorMessage& message) override;
  void SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) override;
  void Close(Connection connection) override;

 private:
  explicit CoordinatorHost(const RunDirectory& directory) : directory_(directory) {}

  const RunDirectory& directory_;
  std::string address_;                // as we have noted it
  std::unique_ptr<RunAlerts> alerts_;  // reports failures to the shell
  std::unique_ptr<CoordinatorShell> shell_;
  std::mutex starting_;                    // held until server_ is set: somebody may be heard before
  std::unique_ptr<ControlServer> server_;  // calls the shell
};

/// The secret of a run, made on first use, in a file that only its owner can read.
absl::StatusOr<std::string> MakeRunToken(const RunDirectory& directory);

}  // namespace holdfast
