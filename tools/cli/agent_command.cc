#include "tools/cli/agent_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/alerts/alert_sender.h"
#include "elastic/launch/coordinator_alarm.h"
#include "elastic/lease/open_lease.h"
#include "elastic/lease/store_lease.h"
#include "elastic/wire/address.h"
#include "elastic/wire/coordinator_addresses.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/limits.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/rare_log.h"
#include "framework/base/status.h"
#include "framework/net/socket_address.h"
#include "models/runtime/run_device.h"
#include "tools/cli/connection_arguments.h"
#include "tools/cli/end_of_input.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kLookTimeout{1};           // of an agent that wants to leave
constexpr std::chrono::milliseconds kInputInterval{200};  // between looks whether to end
constexpr std::chrono::seconds kAbandonedAfter{10};       // without a coordinator
constexpr std::chrono::seconds kLogInterval{30};
constexpr size_t kMaxNodeBytes = 200;  // of which names of workers (kMaxNameBytes) and of their logs (255) are made

/// The same command may succeed when there is a coordinator.
absl::Status NobodyCame(const std::string& what, const Config& config) {
  return absl::UnavailableError(absl::StrCat(what, " in ", config.elastic.coordinator_timeout_ms,
                                             " ms (elastic.coordinator_timeout_ms): is a coordinator running?"));
}

/// The coordinator makes the token of the run directory, and may not have been started yet. Cancelled: asked to stop.
absl::Status WaitForToken(const std::string& token_file, const RunDirectory& directory, const Config& config,
                          const std::stop_token& stop) {
  std::error_code error;
  const auto place = std::filesystem::weakly_canonical(token_file, error);
  if (place != std::filesystem::weakly_canonical(directory.token(), error)) return absl::OkStatus();
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(config.elastic.coordinator_timeout_ms);
  for (bool is_told = false; !std::filesystem::exists(place, error); std::this_thread::sleep_for(kInputInterval)) {
    if (!std::exchange(is_told, true)) LogInfo("waiting for the coordinator to make ", token_file);
    if (stop.stop_requested()) return absl::CancelledError("asked to stop");
    if (std::chrono::steady_clock::now() < until) continue;
    return NobodyCame(absl::StrCat(token_file, " has not been made"), config);
  }
  return absl::OkStatus();
}

/// Of a coordinator: those that are given, else the one that leads, as soon as one does. Cancelled: asked to stop.
absl::StatusOr<std::string> WaitForAddress(const ConnectionOptions& connection, const Config& config,
                                           const std::stop_token& stop) {
  if (!connection.coordinator.empty()) return connection.coordinator;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(config.elastic.coordinator_timeout_ms);
  RareLog waits(kLogInterval);
  while (!stop.stop_requested()) {
    absl::StatusOr<std::string> leader = connection.find_leader();
    const bool is_late = std::chrono::steady_clock::now() > until;
    if (is_late && absl::IsNotFound(leader.status())) {
      return NobodyCame(std::string(leader.status().message()), config);
    }
    if (leader.ok() || is_late) return leader;
    const auto line = waits.Line(std::chrono::steady_clock::now().time_since_epoch(), leader.status().message());
    if (line.has_value()) LogInfo("waiting for a coordinator: ", *line);
    std::this_thread::sleep_for(kInputInterval);
  }
  return absl::CancelledError("asked to stop");
}

/// Where workers of other machines reach those of this one.
absl::StatusOr<std::string> HostFor(const std::string& host, const std::string& coordinator) {
  absl::StatusOr<std::string> towards = absl::InvalidArgumentError("--coordinator names no address");
  for (const std::string& address : CoordinatorAddresses(coordinator).All()) {
    if (towards = LocalAddressTowards(address); towards.ok()) break;
  }
  if (host.empty()) {
    if (towards.ok()) return towards;
    // A machine that is being started may have no network yet, and a coordinator that is no name.
    return absl::UnavailableError(
        absl::StrCat("the way to the coordinator is not known: ", std::string(towards.status().message()),
                     "; it may be later, if --coordinator is right; with --host the agent waits for it"));
  }
  if (const auto here = ResolveHost(host); !here.ok()) {  // workers listen at it
    if (!absl::IsInvalidArgument(here.status())) return Annotate(here.status(), "--host");
    return UsageError(absl::StrCat("error: --host: ", here.status().message()));
  }
  if (towards.ok() && !IsLoopbackHost(*towards) && IsLoopbackHost(host)) {
    return UsageError(absl::StrCat("error: --host ", host, " is reached from this machine only, but the coordinator ",
                                   coordinator,
                                   " is on another: leave --host out, or pass an address of this machine"));
  }
  return host;
}

/// Has the agent leave when standard input ends. Who held it may have been killed together with the coordinator: then
/// there is nobody to leave to, and the process ends, with which the kernel ends its workers.
void LeaveWithInput(const std::stop_token& stop, AgentShell& agent, const ControlClientOptions& client) {
  using Clock = std::chrono::steady_clock;
  if (!WaitForEndOfInput(STDIN_FILENO, stop)) return;
  agent.Stop(SIGTERM);
  for (auto reached = Clock::now(); !stop.stop_requested(); std::this_thread::sleep_for(kInputInterval)) {
    if (FetchStatus(client).ok()) reached = Clock::now();
    if (Clock::now() - reached < kAbandonedAfter) continue;
    std::fprintf(stderr, "error: standard input has ended, and the coordinator cannot be reached\n");
    std::_Exit(128 + SIGTERM);
  }
}

/// What the coordinator that leads says in the lease, or in the run directory's lock.
absl::StatusOr<LockText> ReadLead(LeaseStore* store, const RunDirectory& directory) {
  if (store == nullptr) return RunLock::Read(directory);
  ASSIGN_OR_RETURN(const LeaseStore::Entry entry, store->Read());
  ASSIGN_OR_RETURN(LeaseSight lease, ReadLease(*store, entry));
  return std::move(lease.text);
}

/// Tells Slack and PagerDuty when no coordinator is left that could.
std::jthread WatchCoordinator(const Config& config, const RunDirectory& directory, const std::string& lease,
                              AgentShell& agent) {
  const AlertsConfig& alerts = config.alerts;
  if (alerts.coordinator_absent_ms == 0) return {};
  if (alerts.slack_webhook_file.empty() && alerts.pagerduty_key_file.empty()) return {};
  absl::StatusOr<AlertOptions> options = ReadAlertOptions(alerts.slack_webhook_file, alerts.pagerduty_key_file);
  if (!options.ok()) {
    LogWarning("should no coordinator answer, this agent cannot tell of it: ", options.status().message());
    return {};
  }
  options->on_failure = [](const std::string& problem) { LogWarning("alert: ", problem); };
  std::shared_ptr<LeaseStore> store;
  if (!lease.empty()) {
    absl::StatusOr<std::unique_ptr<LeaseStore>> opened = OpenLeaseStore(lease, kLookTimeout, /*may_lead=*/false);
    if (!opened.ok()) {
      LogWarning("should no coordinator answer, this agent cannot tell of it: ", opened.status().message());
      return {};
    }
    store = *std::move(opened);
  }
  return std::jthread([&config, &directory, &agent, store, options = *options](const std::stop_token& stop) {
    CoordinatorAlarm alarm(
        config, directory, [&] { return ReadLead(store.get(), directory); }, options);
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kInputInterval)) alarm.Look(agent.AloneFor());
  });
}

}  // namespace

absl::StatusOr<int> AgentCommand::Run() const {
  RunArguments what = run;
  RETURN_IF_ERROR(what.config.Read());
  StopSignal stop_signal;  // before any other thread
  ASSIGN_OR_RETURN(const Config config, what.Load());
  const int64_t workers_here = std::max(workers, workers_of_host);
  RETURN_IF_ERROR(CheckGpus(config, workers_here));
  const std::string warning = TooManyThreadsWarning("train.threads", config.train.threads, workers_here);
  if (!warning.empty()) LogWarning(warning);
  const RunDirectory directory = run.Directory(config);
  ConnectionOptions coordinators = connection;
  if (coordinators.token_file.empty()) coordinators.token_file = directory.token();
  RETURN_IF_ERROR(LookForLeader(directory, coordinators));
  const absl::StatusOr<std::string> towards = WaitForAddress(coordinators, config, stop_signal.token());
  if (absl::IsCancelled(towards.status())) return 128 + stop_signal.received();
  RETURN_IF_ERROR(towards.status());
  ASSIGN_OR_RETURN(const std::string reached_at, HostFor(host, *towards));
  const absl::Status waited = WaitForToken(coordinators.token_file, directory, config, stop_signal.token());
  if (absl::IsCancelled(waited)) return 128 + stop_signal.received();
  RETURN_IF_ERROR(waited);
  RETURN_IF_ERROR(Annotate(directory.MakeLogs(), "cannot write the workers' logs"));
  coordinators.counted_on = std::chrono::milliseconds(config.elastic.coordinator_timeout_ms);
  ASSIGN_OR_RETURN(const auto link, MakeControlLink(coordinators));
  const AgentSettings settings{.node = node,
                               .host = reached_at,
                               .coordinator = connection.coordinator,
                               .config_path = run.config.path,
                               .overrides = run.config.overrides,
                               .connection = coordinators.Arguments(),
                               .num_workers = workers,
                               .workers_of_host = workers_of_host,
                               .first_of_host = first_of_host};
  ASSIGN_OR_RETURN(ControlClientOptions client, coordinators.ClientOptions());
  client.connect_timeout = kLookTimeout;
  std::printf("node %s: workers %d, coordinator %s, logs in %s\n", node.c_str(), static_cast<int>(workers),
              towards->c_str(), directory.logs().c_str());
  std::fflush(stdout);
  AgentShell agent(config, directory, settings, *link, [client] { return FetchStatus(client); });
  const std::stop_callback on_stop(stop_signal.token(), [&] { agent.Stop(stop_signal.received()); });
  const std::jthread alarm = WatchCoordinator(config, directory, connection.lease, agent);
  std::jthread input;
  if (while_stdin_open) {
    input = std::jthread([&agent, client](const std::stop_token& stop) { LeaveWithInput(stop, agent, client); });
  }
  const EndMessage end = agent.Wait();
  if (end.exit_code == 0 || end.exit_code > 128) {
    std::printf("%s\n", end.reason.c_str());
  } else {
    std::fprintf(stderr, "error: %s\n", end.reason.c_str());
  }
  return end.exit_code;
}

void AgentCommand::AddTo(CLI::App& command) {
  run.AddTo(command);
  AddConnectionOptions(command, connection);
  command.add_option("--workers", workers, absl::StrCat("worker processes on this machine; default ", workers))
      ->check(WholeNumberWithin(1, kMaxWorkers));
  command
      .add_option("--workers-of-host", workers_of_host,
                  "with those of other agents on this machine: all share its processors, memory and GPUs; default: "
                  "--workers")
      ->check(WholeNumberWithin(1, kMaxWorkers));
  command.add_option("--first-of-host", first_of_host, "which of those the first worker is, from 0; default 0")
      ->check(WholeNumberWithin(0, kMaxWorkers));
  command.add_flag("--while-stdin-open", while_stdin_open,
                   "leave the run when standard input ends, as if by SIGTERM: for what starts agents through ssh");
  command
      .add_option("--node", node,
                  "name of this machine: what may fail together; default: its host name, in Slurm node-NUMBER")
      ->check([](const std::string& name) {  // it is a part of names of workers and of their logs
        const bool is_one = !name.empty() && name.find('/') == std::string::npos && name.size() <= kMaxNodeBytes;
        return is_one
                   ? std::string()
                   : absl::StrCat("a name without / of up to ", kMaxNodeBytes, " bytes is expected, not '", name, "'");
      });
  command
      .add_option("--host", host,
                  "address where workers of other machines reach those of this one, without port; default: the one "
                  "that the way to the coordinator begins at")
      ->check(HostProblem);
}

}  // namespace holdfast
