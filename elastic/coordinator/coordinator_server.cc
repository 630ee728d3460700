#include "elastic/coordinator/coordinator_server.h"

#include <chrono>
#include <condition_variable>

#include "elastic/coordinator/run_id.h"
#include "elastic/wire/token.h"
#include "framework/base/open_files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kGoodbye{2000};  // for everybody to be told of the end
constexpr std::chrono::seconds kLook{1};             // between two looks at the files that are kept

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(const Config& config,
                                                                            const RunDirectory& directory,
                                                                            const RunStart& start,
                                                                            const ControlServerOptions& options) {
  RaiseOpenFileLimit();  // every connection is a file, also those of strangers that are about to be refused
  std::unique_ptr<CoordinatorServer> server(new CoordinatorServer);
  ASSIGN_OR_RETURN(server->runtime_, CoordinatorRuntime::Create(config, directory, start, *server));
  {
    const std::lock_guard lock(server->starting_);
    ASSIGN_OR_RETURN(server->server_, ControlServer::Start(options, server.get()));
  }
  ASSIGN_OR_RETURN(server->noted_address_,
                   NotedAddress::Write(directory.coordinator_address(), server->reached_at(), start.is_ours));
  if (start.history.run != 0) {
    server->run_id_.emplace(directory.run_id(), RunIdText(start.history.run), KeptFileKind::kOfRun, start.is_ours);
  }
  // A token of another place is not ours to keep.
  if (ReadTokenFile(directory.token()).value_or("") == options.token) {
    server->token_.emplace(directory.token(), options.token, KeptFileKind::kSecret, start.is_ours);
  }
  server->file_keeper_ = std::jthread([&server = *server](const std::stop_token& stop) { server.KeepFiles(stop); });
  return server;
}

CoordinatorServer::~CoordinatorServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::milliseconds(0));  // nobody calls the shell any more,
  runtime_.reset();                                                         // which may answer the last that did
  server_.reset();
}

void CoordinatorServer::KeepFiles(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  while (!woken.wait_for(lock, stop, kLook, [&] { return stop.stop_requested(); })) {
    noted_address_->KeepInPlace();
    if (run_id_.has_value()) run_id_->KeepInPlace();
    if (token_.has_value()) token_->KeepInPlace();
  }
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
