#include "elastic/coordinator/coordinator_server.h"

#include <unistd.h>

#include <chrono>

#include "framework/base/files.h"
#include "framework/base/open_files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxAddressFileBytes = 1000;
constexpr std::chrono::milliseconds kGoodbye{2000};  // for everybody to be told of the end

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(const Config& config,
                                                                            const RunDirectory& directory,
                                                                            const RunStart& start,
                                                                            const ControlServerOptions& options) {
  RaiseOpenFileLimit();  // every connection is a file, also those of strangers that are about to be refused
  std::unique_ptr<CoordinatorServer> server(new CoordinatorServer(directory));
  ASSIGN_OR_RETURN(server->runtime_, CoordinatorRuntime::Create(config, directory, start, *server));
  {
    const std::lock_guard lock(server->starting_);
    ASSIGN_OR_RETURN(server->server_, ControlServer::Start(options, server.get()));
  }
  server->noted_address_ = server->server_->reached_at() + "\n";
  // Else it is there that of one that has taken the run over.
  if (const absl::Status ours = start.is_ours(); !ours.ok()) return absl::AbortedError(ours.message());
  RETURN_IF_ERROR(WriteFileAtomically(directory.coordinator_address(), server->noted_address_));
  return server;
}

CoordinatorServer::~CoordinatorServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::milliseconds(0));  // nobody calls the shell any more,
  runtime_.reset();                                                         // which may answer the last that did
  server_.reset();
  // Another coordinator may have taken the run over, and have written its own there.
  const absl::StatusOr<std::string> there = ReadFile(directory_.coordinator_address(), kMaxAddressFileBytes);
  if (there.ok() && *there == noted_address_) unlink(directory_.coordinator_address().c_str());
}

CoordinatorShell::Outcome CoordinatorServer::Wait() {
  CoordinatorShell::Outcome outcome = shell().Wait();
  server_->Shutdown(kGoodbye);
  return outcome;
}

void CoordinatorServer::OnMessage(Connection from, WorkerMessage message) {
  { const std::lock_guard lock(starting_); }
  shell().OnMessage(from, message);
}

void CoordinatorServer::Send(Connection to, const CoordinatorMessage& message) {
  if (server_ != nullptr) server_->Send(to, message);
}

void CoordinatorServer::SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) {
  if (server_ != nullptr) server_->SendToAll(to, message);
}

void CoordinatorServer::Close(Connection connection) {
  if (server_ != nullptr) server_->Close(connection);
}

}  // namespace holdfast
