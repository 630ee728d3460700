#include "elastic/launch/local_launcher.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/strings/str_cat.h"
#include "elastic/agent/agent_shell.h"
#include "elastic/coordinator/coordinator_server.h"
#include "elastic/wire/grpc_link.h"
#include "elastic/wire/token.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Ends a run that waits for workers, or for the state they held, when too few worker processes are left: nobody else
/// would. Every other wait has its own limit.
class WorkerWatch {
 public:
  WorkerWatch(AgentShell& agent, CoordinatorShell& shell, int64_t least)
      : agent_(agent), thread_([this, &shell, least](const std::stop_token& over) {
          const auto waits_in_vain = [&] {
            if (agent_.NumRunning() >= least) return false;
            const RunStatus run = shell.StatusNow();
            return run.state == RunState::kWaitingForWorkers ||
                   (run.state == RunState::kRecovering && std::ssize(run.workers) < least);
          };
          while (!waits_in_vain()) {
            if (over.stop_requested()) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
          }
          const int64_t left = agent_.NumRunning();
          failure_ = left == 0 ? agent_.Wait().reason
                               : absl::StrCat(left, " of at least ", Counted(least, "worker"),
                                              " left, the others have failed");
          // Those that are left may have something to save.
          left == 0 ? shell.GiveUpRun(*failure_) : shell.RequestStop(SIGTERM);
        }) {}

  /// Waits for the workers to be gone. The outcome of the run, which is no stop if the workers failed before it.
  CoordinatorShell::Outcome Finish(CoordinatorShell::Outcome outcome) {
    if (outcome.goes_on) {  // no other coordinator reaches these workers, and nobody would answer them
      agent_.OnMessage(RefusedMessage{.reason = outcome.reason});
    } else {
      agent_.OnMessage(EndMessage{outcome.exit_code, outcome.reason});  // it may not have come to hear it before
    }
    thread_.request_stop();
    thread_.join();
    agent_.Wait();
    if (!failure_.has_value() || outcome.exit_code <= 128) return outcome;
    outcome.exit_code = EXIT_FAILURE;
    outcome.reason = *failure_;
    return outcome;
  }

 private:
  AgentShell& agent_;
  std::optional<std::string> failure_;  // of the thread, until it has been joined
  std::jthread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalLauncher>> LocalLauncher::Open(const Config& config, const RunDirectory& directory,
                                                                   std::string binary, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(TrainingOutline outline, CheckTraining(config, config.elastic.workers, stop));
  return std::unique_ptr<LocalLauncher>(new LocalLauncher(config, directory, std::move(outline), std::move(binary)));
}

absl::StatusOr<CoordinatorShell::Outcome> LocalLauncher::Run(const PreparedRun& run, const StopSignal& stop) {
  RETURN_IF_ERROR(Annotate(MakeDirectories(directory_.logs()), "cannot write the workers' logs"));
  ControlServerOptions server{.address = "127.0.0.1:0", .token = "", .tls = {}};
  ASSIGN_OR_RETURN(server.token, MakeTokenFile(directory_.token()));
  ASSIGN_OR_RETURN(const auto coordinator,
                   CoordinatorServer::Start(config_, directory_, StartOf(config_, run, outline().data), server));
  const ConnectionOptions connection{.coordinator = coordinator->address(),
                                     .token_file = directory_.token(),
                                     .tls = {},
                                     .counted_on = std::chrono::milliseconds(config_.elastic.coordinator_timeout_ms)};
  ASSIGN_OR_RETURN(const auto link, MakeControlLink(connection));
  const AgentSettings settings{.node = "local",
                               .host = "127.0.0.1",
                               .coordinator = coordinator->address(),
                               .config_path = directory_.config(),
                               .overrides = {},
                               .connection = connection.Arguments(),
                               .num_workers = config_.elastic.workers,
                               .binary = binary_};
  AgentShell agent(config_, directory_, settings, *link);
  WorkerWatch watch(agent, coordinator->shell(), std::max<int64_t>(1, config_.elastic.min_workers));
  const std::stop_callback on_stop(stop.token(), [&] { coordinator->shell().RequestStop(stop.received()); });
  // The server stays meanwhile: a worker that was just starting hears of the end, too.
  return watch.Finish(coordinator->shell().Wait());
}

}  // namespace holdfast
