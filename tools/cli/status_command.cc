#include "tools/cli/status_command.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elastic/wire/control_client.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"
#include "tools/cli/connection_arguments.h"
#include "tools/cli/run_record.h"
#include "tools/cli/status_text.h"

namespace holdfast {
namespace {

/// `target` is a run directory with a coordinator's address in it, or that address.
absl::StatusOr<ConnectionOptions> FindCoordinator(const StatusCommand& arguments) {
  ConnectionOptions connection{
      .coordinator = arguments.target, .token_file = arguments.token_file, .tls = arguments.tls};
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(arguments.target, error);
  if (!arguments.lease.empty()) {
    connection.lease = arguments.lease;
    RETURN_IF_ERROR(LookForLeader(RunDirectory(arguments.target), connection));
    ASSIGN_OR_RETURN(connection.coordinator, connection.find_leader());
    connection.find_leader = nullptr;
    connection.address_file.clear();
    if (connection.token_file.empty() && is_directory) connection.token_file = RunDirectory(arguments.target).token();
    return connection;
  }
  if (!is_directory) {
    const bool is_address =
        arguments.target.find(':') != std::string::npos && arguments.target.find('/') == std::string::npos;
    if (is_address) {
      const std::string problem = AddressProblem(arguments.target);
      if (!problem.empty()) return UsageError(absl::StrCat("error: ", problem));
      return connection;
    }
    if (arguments.target.empty()) {
      return UsageError("error: the name is empty; give a run directory, or HOST:PORT of a coordinator");
    }
    if (!std::filesystem::exists(arguments.target, error) && error) {
      return ErrnoToStatus(error.value(), arguments.target);
    }
    return absl::NotFoundError(absl::StrCat("there is no directory ", arguments.target,
                                            "; give a run directory, or HOST:PORT of a coordinator"));
  }
  const RunDirectory directory(arguments.target);
  if (!std::filesystem::exists(directory.coordinator_address(), error)) {
    if (error) return ErrnoToStatus(error.value(), directory.coordinator_address());
    return absl::NotFoundError(absl::StrCat(arguments.target, " is not a run directory: it holds no run"));
  }
  connection.coordinator.clear();
  connection.address_file = directory.coordinator_address();
  if (connection.token_file.empty() && std::filesystem::exists(directory.token(), error)) {
    connection.token_file = directory.token();
  }
  return connection;
}

/// Of the coordinator of a run that is alive, reached without TLS. gRPC's words name a socket and a system call; what
/// it asks for TLS is told in our own.
absl::Status ExplainSilence(const absl::Status& status) {
  const std::string text(status.message());
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(absl::StrCat(text.substr(0, text.rfind(": ")), ": it takes the call and does not ",
                                               "answer: its process stands still, or its machine is overloaded"));
  }
  const size_t raw = text.find("failed to connect to all addresses");
  if (raw == std::string::npos || absl::StrContains(text, "--tls-certificate")) return status;
  return absl::UnavailableError(
      absl::StrCat(text.substr(0, raw), "no answer; the run is starting or ending, or it is not reached from here"));
}

/// Of an address that somebody names, where anything may listen; gRPC's words come last.
absl::Status ExplainAddress(const std::string& address, const absl::Status& status) {
  const bool is_another = absl::IsUnimplemented(status) || absl::IsUnknown(status);
  if (!is_another && !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  const absl::string_view raw = absl::StripPrefix(status.message(), absl::StrCat("coordinator ", address, ": "));
  const std::string message = absl::StrCat(
      "no coordinator answers at ", address,
      ": its run is starting or has ended, something else listens there, or it is not reached from here (", raw, ")");
  return is_another ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

/// Whether who answers leads the run in `directory`. Of one that was killed the address stays, where another run's
/// coordinator may listen by now, which may have the same token. In a copy of the directory it is named, too, and does
/// not hold the lock; of another machine's locks not every file system tells.
bool IsOfRun(const RunStatus& status, const RunDirectory& directory) {
  const absl::StatusOr<LockText> lock = RunLock::Read(directory);
  if (!lock.ok() || lock->owner.empty() || status.leader.empty()) return true;
  return lock->owner == status.leader && (!lock->IsHere() || RunLock::IsHeld(directory).value_or(true));
}

}  // namespace

absl::StatusOr<RunStatus> StatusCommand::Fetch() const {
  const RunDirectory directory(target);
  std::error_code error;
  if (lease.empty() && !std::filesystem::exists(directory.coordinator_address(), error)) {
    if (RunLock::IsHeld(directory).value_or(false)) return StatusByRecord(directory);
    if (directory.HoldsRun()) return StatusAtTheEnd(directory);
  }
  ASSIGN_OR_RETURN(const ConnectionOptions connection, FindCoordinator(*this));
  ASSIGN_OR_RETURN(const ControlClientOptions options, connection.ClientOptions());
  absl::StatusOr<RunStatus> status = FetchStatus(options);
  const bool is_silent = absl::IsUnavailable(status.status()) || absl::IsDeadlineExceeded(status.status());
  if (!lease.empty() || !directory.HoldsRun()) {
    return status.ok()
               ? std::move(status)
               : ExplainAddress(connection.coordinator.empty() ? target : connection.coordinator, status.status());
  }
  if (status.ok() && IsOfRun(*status, directory)) return status;
  // Who answers at the address that it has left, and wants another token, is another run's.
  if (!RunLock::IsHeld(directory).value_or(true)) return StatusAtTheEnd(directory);
  if (status.ok()) {  // a coordinator that takes the run over is about to say where it listens
    return absl::UnavailableError(absl::StrCat("the coordinator that answers at the address in ",
                                               directory.coordinator_address(), ", of run ", status->figures.run,
                                               ", is not the one that has the lock of ", directory.root(), ", ",
                                               RunLock::Read(directory).value_or(LockText()).Name(), ": ask again"));
  }
  if (!is_silent || tls.enabled()) return status;  // the words may be about certificates
  return ExplainSilence(status.status());
}

void StatusCommand::Print(const RunStatus& status) const {
  constexpr int kEvents = 8;
  if (json) {
    std::printf("%s\n", StatusJson(status, /*on_one_line=*/watch).c_str());
  } else {
    if (watch) std::printf("\033[H\033[2J");
    std::printf("%s\n%s", StatusText(status).c_str(), LastEvents(RunDirectory(target).events(), kEvents).c_str());
  }
  std::fflush(stdout);
}

absl::StatusOr<int> StatusCommand::Run() const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience{60};  // with a run of which no coordinator answers
  ASSIGN_OR_RETURN(RunStatus status, ExplainSweep(Fetch(), target));
  Print(status);
  Clock::time_point last_answer = Clock::now();
  while (watch && status.state != RunState::kEnded && status.state != RunState::kNotRunning) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const absl::StatusOr<RunStatus> news = Fetch();
    const bool is_silent = !news.ok() || news->state == RunState::kNotRunning;
    if (is_silent && Clock::now() - last_answer <= kPatience) {
      const std::string why = news.ok() ? "nobody runs it" : std::string(news.status().message());
      std::fprintf(stderr, "%s; asking again\n", why.c_str());
      continue;
    }
    if (!news.ok()) return news.status();
    last_answer = Clock::now();
    status = *news;
    Print(status);
  }
  return status.state == RunState::kNotRunning ? kExitFailure : kExitDone;
}

void StatusCommand::AddTo(CLI::App& command) {
  command.add_option("RUN", target, "run directory, or HOST:PORT of the coordinator")->required();
  AddLeaseOption(command, lease, "where the coordinator's address is looked for, instead of in the run directory");
  command.add_flag("--watch", watch, "print it every second until the run has ended");
  command.add_flag("--json", json, "print one JSON object, with --watch one a line");
  command.add_option("--token-file", token_file, "file with the run's secret; default: that of the run directory");
  AddTlsOptions(command, tls);
}

}  // namespace holdfast
