// holdfast coordinator, agent, status: the parts of a run over several machines, started by hand or by a scheduler.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "elastic/wire/address.h"
#include "elastic/wire/token.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "tools/agent_host.h"
#include "tools/command.h"
#include "tools/connection_options.h"
#include "tools/coordinator_host.h"
#include "tools/run_arguments.h"
#include "tools/status_text.h"
#include "tools/training_session.h"

namespace holdfast {
namespace {

constexpr size_t kMaxAddressBytes = 1024;
constexpr std::chrono::seconds kLookTimeout{1};  // of an agent that wants to leave

struct CoordinatorArguments {
  RunArguments run;
  std::string listen = "127.0.0.1:29400", token_file;
  TlsFiles tls;
  bool overwrite = false;
  std::string resume;
};

absl::StatusOr<int> Coordinate(const CoordinatorArguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  HF_ASSIGN_OR_RETURN(const Config config, arguments.run.Load());
  const RunDirectory directory = arguments.run.Directory(config);
  Config checked = config;
  checked.train.device = DeviceKind::kCpu;  // workers compute, elsewhere: no GPU is needed here
  HF_ASSIGN_OR_RETURN(const auto session, OpenTrainingSession(checked, /*workers_here=*/1, /*check_only=*/true));
  HF_ASSIGN_OR_RETURN(
      const PreparedRun run,
      PrepareRun(config, directory, session->model->layout(),
                 {.overwrite = arguments.overwrite, .resume = arguments.resume, .workers_are_new = false}));
  ControlServerOptions server{.address = arguments.listen, .token = "", .tls = arguments.tls};
  HF_ASSIGN_OR_RETURN(server.token,
                      arguments.token_file.empty() ? MakeRunToken(directory) : ReadTokenFile(arguments.token_file));
  HF_ASSIGN_OR_RETURN(const auto host, CoordinatorHost::Start(config, directory, run, server));
  std::printf("listening at %s; run directory %s\n", host->address().c_str(), directory.root().c_str());
  PrintResume(run);
  std::fflush(stdout);
  const std::stop_callback on_stop(stop_signal.token(), [&] { host->shell().RequestStop(stop_signal.received()); });
  const CoordinatorShell::Outcome outcome = host->Wait();
  if (outcome.exit_code != 0 && outcome.exit_code <= 128) return absl::InternalError(outcome.reason);
  std::printf("%s\n", outcome.reason.c_str());
  return outcome.exit_code;
}

struct AgentArguments {
  RunArguments run;
  ConnectionOptions connection;
  std::string node = DefaultNode(), host;  // host: empty = the address on the way to the coordinator
  int64_t workers = 1;
};

/// Where workers of other machines reach those of this one.
absl::StatusOr<std::string> HostFor(const AgentArguments& arguments) {
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

absl::StatusOr<int> Supervise(const AgentArguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  HF_ASSIGN_OR_RETURN(const Config config, arguments.run.Load());
  HF_RETURN_IF_ERROR(CheckGpus(config, arguments.workers));
  HF_ASSIGN_OR_RETURN(const std::string host, HostFor(arguments));
  const RunDirectory directory = arguments.run.Directory(config);
  HF_ASSIGN_OR_RETURN(const auto link, MakeControlLink(arguments.connection));
  const AgentSettings settings{.node = arguments.node,
                               .host = host,
                               .coordinator = arguments.connection.coordinator,
                               .config_path = arguments.run.config.path,
                               .overrides = arguments.run.config.overrides,
                               .connection = arguments.connection.Arguments(),
                               .num_workers = arguments.workers};
  HF_ASSIGN_OR_RETURN(ControlClientOptions client, arguments.connection.ClientOptions());
  client.connect_timeout = kLookTimeout;
  std::printf("node %s: workers %d, coordinator %s, logs in %s\n", arguments.node.c_str(),
              static_cast<int>(arguments.workers), arguments.connection.coordinator.c_str(), directory.logs().c_str());
  std::fflush(stdout);
  AgentHost agent(config, directory, settings, *link, [client] { return FetchStatus(client); });
  const std::stop_callback on_stop(stop_signal.token(), [&] { agent.Stop(stop_signal.received()); });
  const EndMessage end = agent.Wait();
  if (end.exit_code == 0 || end.exit_code > 128) {
    std::printf("%s\n", end.reason.c_str());
  } else {
    std::fprintf(stderr, "error: %s\n", end.reason.c_str());
  }
  return end.exit_code;
}

struct StatusArguments {
  std::string target, token_file;
  TlsFiles tls;
  bool watch = false, json = false;
};

/// `target` is a run directory with a coordinator's address in it, or that address.
absl::StatusOr<ConnectionOptions> FindCoordinator(const StatusArguments& arguments) {
  ConnectionOptions connection{
      .coordinator = arguments.target, .token_file = arguments.token_file, .tls = arguments.tls};
  std::error_code error;
  if (!std::filesystem::is_directory(arguments.target, error)) return connection;
  const RunDirectory directory(arguments.target);
  if (!std::filesystem::exists(directory.coordinator_address(), error)) {
    return absl::NotFoundError(absl::StrCat("no coordinator is at work in ", arguments.target));
  }
  HF_ASSIGN_OR_RETURN(std::string address, ReadFile(directory.coordinator_address(), kMaxAddressBytes));
  address.erase(address.find_last_not_of('\n') + 1);
  connection.coordinator = address;
  if (connection.token_file.empty() && std::filesystem::exists(directory.token(), error)) {
    connection.token_file = directory.token();
  }
  return connection;
}

absl::StatusOr<int> ShowStatus(const StatusArguments& arguments) {
  constexpr int kEvents = 8;
  HF_ASSIGN_OR_RETURN(const ConnectionOptions connection, FindCoordinator(arguments));
  HF_ASSIGN_OR_RETURN(const ControlClientOptions options, connection.ClientOptions());
  while (true) {
    HF_ASSIGN_OR_RETURN(const RunStatus status, FetchStatus(options));
    if (arguments.watch) std::printf("\033[H\033[2J");
    if (arguments.json) {
      std::printf("%s\n", StatusJson(status).c_str());
    } else {
      std::printf("%s\n%s", StatusText(status).c_str(),
                  LastEvents(RunDirectory(arguments.target).events(), kEvents).c_str());
    }
    std::fflush(stdout);
    if (!arguments.watch) return kExitDone;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void AddClusterCommands(CLI::App& parent, CommandBody& body) {
  CLI::App* coordinator =
      parent.add_subcommand("coordinator", "Decide for a run over several machines; the same command goes on with it");
  auto coordinate = std::make_shared<CoordinatorArguments>();
  coordinate->run.AddTo(*coordinator);
  coordinator->add_option("--listen", coordinate->listen,
                          "HOST[:PORT] to listen at; beyond loopback the run's token or TLS is asked for");
  coordinator->add_option("--token-file", coordinate->token_file,
                          "file with a secret, mode 0600; default: one is made in the run directory");
  AddTlsOptions(*coordinator, coordinate->tls);
  AddResumeOption(*coordinator, coordinate->resume);
  coordinator->add_flag("--overwrite", coordinate->overwrite, "replace the run that is in the run directory");
  coordinator->callback([coordinate, &body] { body = [coordinate] { return Coordinate(*coordinate); }; });

  CLI::App* agent = parent.add_subcommand("agent", "Start and watch the workers of one machine");
  auto supervise = std::make_shared<AgentArguments>();
  supervise->run.AddTo(*agent);
  supervise->connection.AddTo(*agent);
  agent->add_option("--workers", supervise->workers, "worker processes on this machine")
      ->check(CLI::Range(int64_t{1}, int64_t{kMaxWorkers}));
  agent->add_option("--node", supervise->node, "name of this machine: what may fail together");
  agent->add_option("--host", supervise->host,
                    "address where workers of other machines reach those of this one; default: the one "
                    "that the way to the coordinator begins at");
  agent->callback([supervise, &body] { body = [supervise] { return Supervise(*supervise); }; });

  CLI::App* status = parent.add_subcommand("status", "The state of a run: world, workers, last events");
  auto show = std::make_shared<StatusArguments>();
  status->add_option("RUN", show->target, "run directory, or HOST:PORT of the coordinator")->required();
  status->add_flag("--watch", show->watch, "again every second");
  status->add_flag("--json", show->json, "for programs");
  status->add_option("--token-file", show->token_file,
                     "file with the run's secret; default: that of the run directory");
  AddTlsOptions(*status, show->tls);
  status->callback([show, &body] { body = [show] { return ShowStatus(*show); }; });
}

}  // namespace holdfast
