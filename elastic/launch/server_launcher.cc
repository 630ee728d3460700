#include "elastic/launch/server_launcher.h"

#include <csignal>
#include <stop_token>
#include <thread>

#include "elastic/coordinator/coordinator_server.h"
#include "elastic/launch/standby.h"
#include "elastic/wire/token.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// But for the token.
ControlServerOptions ServerOptions(const ServerLauncher::Options& options) {
  return {.address = options.listen, .advertise = options.advertise, .token = "", .tls = options.tls};
}

}  // namespace

absl::Status ServerLauncher::CanListen(const Options& options) {
  ControlServerOptions server = ServerOptions(options);
  server.token = "to be made";
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(server.token, ReadTokenFile(options.token_file));
  }
  return ControlServer::Check(server);
}

absl::StatusOr<std::unique_ptr<ServerLauncher>> ServerLauncher::Open(const Config& config,
                                                                     const RunDirectory& directory, Options options,
                                                                     const std::stop_token& stop) {
  ASSIGN_OR_RETURN(TrainingOutline outline, CheckTraining(config, /*workers_here=*/0, stop));
  RETURN_IF_ERROR(CanListen(options));
  return std::unique_ptr<ServerLauncher>(new ServerLauncher(config, directory, std::move(outline), std::move(options)));
}

absl::StatusOr<CoordinatorShell::Outcome> ServerLauncher::Run(const PreparedRun& run, const StopSignal& stop) {
  ControlServerOptions server = ServerOptions(options_);
  ASSIGN_OR_RETURN(server.token, options_.token_file.empty() ? MakeTokenFile(directory_.token())
                                                             : ReadTokenFile(options_.token_file));
  ASSIGN_OR_RETURN(const auto coordinator,
                   CoordinatorServer::Start(config_, directory_, StartOf(config_, run, outline().data), server));
  run.lead->ListensAt(coordinator->reached_at());
  if (!options_.taken_over_from.empty()) {
    coordinator->shell().Report(event::CoordinatorChanged{options_.taken_over_from});
  }
  if (options_.on_listening != nullptr) options_.on_listening(coordinator->address());
  std::jthread way;  // looks around for up to one and a half seconds, in which a second SIGINT is to be heard
  const std::stop_callback on_stop(stop.token(), [&] {
    way = std::jthread([&shell = coordinator->shell(), &directory = directory_, signal = stop.received(),
                        hands_over = options_.hands_over] {
      const bool is_left = hands_over && signal == SIGTERM && SomebodyStandsBy(directory);
      return is_left ? shell.MakeWay(signal) : shell.RequestStop(signal);
    });
  });
  CoordinatorShell::Outcome outcome = coordinator->Wait();
  if (!outcome.goes_on) run.lead->EndsWith(outcome.exit_code, outcome.reason);
  return outcome;
}

}  // namespace holdfast
