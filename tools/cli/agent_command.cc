#include "tools/cli/agent_command.h"

#include <chrono>
#include <cstdio>
#include <stop_token>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/wire/address.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "models/runtime/run_device.h"
#include "tools/cli/connection_arguments.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kLookTimeout{1};  // of an agent that wants to leave

/// Where workers of other machines reach those of this one.
absl::StatusOr<std::string> HostFor(const AgentCommand& arguments) {
  const std::string& coordinator = arguments.connection.coordinator;
  const auto towards = LocalAddressTowards(coordinator);
  if (arguments.host.empty()) {
    return towards.ok() ? towards : UsageError(absl::StrCat(std::string(towards.status().message()), "; pass --host"));
  }
  if (towards.ok() && !IsLoopbackHost(*towards) && IsLoopbackHost(arguments.host)) {
    return UsageError(absl::StrCat("--host ", arguments.host,
                                   " is reached from this machine only, but the coordinator ", coordinator,
                                   " is on another: leave --host out, or pass an address of this machine"));
  }
  return arguments.host;
}

}  // namespace

absl::StatusOr<int> AgentCommand::Run() const {
  StopSignal stop_signal;  // before any other thread
  ASSIGN_OR_RETURN(const Config config, run.Load());
  RETURN_IF_ERROR(CheckGpus(config, workers));
  ASSIGN_OR_RETURN(const std::string reached_at, HostFor(*this));
  const RunDirectory directory = run.Directory(config);
  ASSIGN_OR_RETURN(const auto link, MakeControlLink(connection));
  const AgentSettings settings{.node = node,
                               .host = reached_at,
                               .coordinator = connection.coordinator,
                               .config_path = run.config.path,
                               .overrides = run.config.overrides,
                               .connection = connection.Arguments(),
                               .num_workers = workers};
  ASSIGN_OR_RETURN(ControlClientOptions client, connection.ClientOptions());
  client.connect_timeout = kLookTimeout;
  std::printf("node %s: workers %d, coordinator %s, logs in %s\n", node.c_str(), static_cast<int>(workers),
              connection.coordinator.c_str(), directory.logs().c_str());
  std::fflush(stdout);
  AgentShell agent(config, directory, settings, *link, [client] { return FetchStatus(client); });
  const std::stop_callback on_stop(stop_signal.token(), [&] { agent.Stop(stop_signal.received()); });
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
  command.add_option("--workers", workers, "worker processes on this machine")
      ->check(CLI::Range(int64_t{1}, int64_t{kMaxWorkers}));
  command.add_option("--node", node, "name of this machine: what may fail together");
  command.add_option("--host", host,
                     "address where workers of other machines reach those of this one; default: the one "
                     "that the way to the coordinator begins at");
}

}  // namespace holdfast
