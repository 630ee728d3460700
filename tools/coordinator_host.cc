#include "tools/coordinator_host.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "elastic/wire/token.h"
#include "framework/base/open_files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

constexpr size_t kMaxAddressFileBytes = 1000;
constexpr std::chrono::milliseconds kGoodbye{2000};  // for everybody to hear of the end

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorHost>> CoordinatorHost::Start(const Config& config,
                                                                        const RunDirectory& directory,
                                                                        const PreparedRun& run,
                                                                        const ControlServerOptions& options) {
  RaiseOpenFileLimit();  // every connection is a file, also those of strangers that are about to be refused
  std::unique_ptr<CoordinatorHost> host(new CoordinatorHost(directory));
  HF_ASSIGN_OR_RETURN(host->alerts_, RunAlerts::Create(config, [&host = *host](const RunEvent& event) {
                        if (host.shell_ != nullptr) host.shell_->Report(event);
                      }));
  HF_ASSIGN_OR_RETURN(
      host->shell_,
      CoordinatorShell::Create(
          config, directory, run.history, ModelFlopsPerToken(config.model, config.batch.sequence_length), *host,
          [&lock = run.lock] { return lock.Check(); },
          [&host = *host](const RunEvent& event) { host.alerts_->OnEvent(event); }, run.keeper.get(), run.usable));
  {
    const std::lock_guard lock(host->starting_);
    HF_ASSIGN_OR_RETURN(host->server_, ControlServer::Start(options, host.get()));
  }
  host->address_ = host->address() + "\n";
  HF_RETURN_IF_ERROR(WriteFileAtomically(directory.coordinator_address(), host->address_));
  return host;
}

CoordinatorHost::~CoordinatorHost() {
  server_.reset();
  if (alerts_ != nullptr) alerts_->Finish();
  // Another coordinator may have taken the run over, and have written its own there.
  const absl::StatusOr<std::string> there = ReadFile(directory_.coordinator_address(), kMaxAddressFileBytes);
  if (there.ok() && *there == address_) unlink(directory_.coordinator_address().c_str());
}

CoordinatorShell::Outcome CoordinatorHost::Wait() {
  CoordinatorShell::Outcome outcome = shell_->Wait();
  server_->Shutdown(kGoodbye);
  return outcome;
}

void CoordinatorHost::OnMessage(Connection from, WorkerMessage message) {
  { const std::lock_guard lock(starting_); }
  shell_->OnMessage(from, message);
}

void CoordinatorHost::Send(Connection to, const CoordinatorMessage& message) {
  if (server_ != nullptr) server_->Send(to, message);
}

void CoordinatorHost::SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) {
  if (server_ != nullptr) server_->SendToAll(to, message);
}

void CoordinatorHost::Close(Connection connection) {
  if (server_ != nullptr) server_->Close(connection);
}

absl::StatusOr<std::string> MakeRunToken(const RunDirectory& directory) {
  const int fd = open(directory.token().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) return ReadTokenFile(directory.token());
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("cannot create ", directory.token()));
  std::random_device random;
  std::string token;
  for (int i = 0; i < 8; ++i) absl::StrAppendFormat(&token, "%08x", random());
  const bool written = write(fd, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  close(fd);
  if (!written) return absl::ResourceExhaustedError(absl::StrCat("cannot write ", directory.token()));
  return token;
}

}  // namespace holdfast
