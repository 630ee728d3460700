#include "tools/cli/status_command.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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
    return absl::NotFoundError(absl::StrCat("there is no directory ", arguments.target,
                                            "; give a run directory, or HOST:PORT of a coordinator"));
  }
  const RunDirectory directory(arguments.target);
  if (!std::filesystem::exists(directory.coordinator_address(), error)) {
    std::string last = LastEvents(directory.events(), 1);
    absl::StripTrailingAsciiWhitespace(&last);
    return absl::NotFoundError(absl::StrCat("no coordinator is running in ", arguments.target,
                                            last.empty() ? "" : absl::StrCat("; the last of its run: ", last)));
  }
  connection.coordinator.clear();
  connection.address_file = directory.coordinator_address();
  if (connection.token_file.empty() && std::filesystem::exists(directory.token(), error)) {
    connection.token_file = directory.token();
  }
  return connection;
}

}  // namespace

absl::StatusOr<RunStatus> StatusCommand::Fetch() const {
  const RunDirectory directory(target);
  std::error_code error;
  if (lease.empty() && !std::filesystem::exists(directory.coordinator_address(), error)) {
    if (RunLock::IsHeld(directory).value_or(false)) return StatusByRecord(directory);
    absl::StatusOr<RunStatus> ended = StatusAtTheEnd(directory);
    if (!absl::IsNotFound(ended.status())) return ended;
  }
  ASSIGN_OR_RETURN(const ConnectionOptions connection, FindCoordinator(*this));
  ASSIGN_OR_RETURN(const ControlClientOptions options, connection.ClientOptions());
  return FetchStatus(options);
}

void StatusCommand::Print(const RunStatus& status) const {
  constexpr int kEvents = 8;
  if (json) {
    std::printf("%s\n", StatusJson(status).c_str());
  } else {
    if (watch) std::printf("\033[H\033[2J");
    std::printf("%s\n%s", StatusText(status).c_str(), LastEvents(RunDirectory(target).events(), kEvents).c_str());
  }
  std::fflush(stdout);
}

absl::StatusOr<int> StatusCommand::Run() const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience{60};  // with a run of which no coordinator answers
  ASSIGN_OR_RETURN(RunStatus status, Fetch());
  Print(status);
  Clock::time_point heard = Clock::now();
  while (watch && status.state != RunState::kEnded) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const absl::StatusOr<RunStatus> news = Fetch();
    if (news.ok()) {
      heard = Clock::now();
      status = *news;
      Print(status);
    } else if (Clock::now() - heard > kPatience) {
      return news.status();
    } else {
      std::fprintf(stderr, "%s; asking again\n", std::string(news.status().message()).c_str());
    }
  }
  return kExitDone;
}

void StatusCommand::AddTo(CLI::App& command) {
  command.add_option("RUN", target, "run directory, or HOST:PORT of the coordinator")->required();
  AddLeaseOption(command, lease, "where the coordinator's address is looked for, instead of in the run directory");
  command.add_flag("--watch", watch, "repeat every second");
  command.add_flag("--json", json, "print JSON");
  command.add_option("--token-file", token_file, "file with the run's secret; default: that of the run directory");
  AddTlsOptions(command, tls);
}

}  // namespace holdfast
