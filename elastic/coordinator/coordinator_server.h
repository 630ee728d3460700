#pragma once
// A coordinator that workers of other processes reach.

#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/coordinator/coordinator_runtime.h"
#include "elastic/coordinator/kept_file.h"
#include "elastic/coordinator/noted_address.h"
#include "elastic/wire/control_server.h"

namespace holdfast {

class CoordinatorServer final : public ControlHandler, public CoordinatorPort {
 public:
  /// Listens, and notes the address in the run directory. That, the run's number and the token in the directory, if it
  /// is that of `options`, are written anew each time they are removed. `config`, `directory` and the keeper of `start`
  /// must outlive the server.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(const Config& config, const RunDirectory& directory,
                                                                  const RunStart& start,
                                                                  const ControlServerOptions& options);
  ~CoordinatorServer() override;

  const std::string& address() const { return server_->address(); }
  /// Where others reach it.
  const std::string& reached_at() const { return server_->reached_at(); }
  CoordinatorShell& shell() { return runtime_->shell(); }
  /// Waits for the end of the run, and until everybody has been told.
  CoordinatorShell::Outcome Wait();

  void OnMessage(Connection from, WorkerMessage message) override;
  void OnDisconnect(Connection connection, std::string cause) override { shell().OnDisconnect(connection, cause); }
  RunStatus StatusNow() override { return runtime_->shell().StatusNow(); }

  void Send(Connection to, const CoordinatorMessage& message) override;
  void SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) override;
  void Close(Connection connection) override;

 private:
  CoordinatorServer() = default;
  void KeepFiles(const std::stop_token& stop);

  std::unique_ptr<NotedAddress> noted_address_;
  // The next coordinator would give the run others, and refuse all that are left.
  std::optional<KeptFile> run_id_, token_;
  std::unique_ptr<CoordinatorRuntime> runtime_;
  std::mutex starting_;                    // held until server_ is set: messages may come before
  std::unique_ptr<ControlServer> server_;  // calls the runtime's shell
  std::jthread file_keeper_;               // looks after noted_address_, run_id_ and token_
};

}  // namespace holdfast
