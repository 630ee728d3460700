#include "tools/train_with_workers.h"

#include "framework/base/status.h"
#include "tools/agent_host.h"
#include "tools/connection_options.h"
#include "tools/coordinator_host.h"

namespace holdfast {

absl::StatusOr<CoordinatorShell::Outcome> TrainWithWorkers(const Config& config, const RunDirectory& directory,
                                                           const PreparedRun& run, const StopSignal& stop_signal) {
  ControlServerOptions server{.address = "127.0.0.1:0", .token = "", .tls = {}};
  HF_ASSIGN_OR_RETURN(server.token, MakeRunToken(directory));
  HF_ASSIGN_OR_RETURN(const auto coordinator, CoordinatorHost::Start(config, directory, run, server));
  const ConnectionOptions connection{.coordinator = coordinator->address(), .token_file = directory.token(), .tls = {}};
  HF_ASSIGN_OR_RETURN(const auto link, MakeControlLink(connection));
  const AgentSettings settings{.node = "local",
                               .host = "127.0.0.1",
                               .coordinator = coordinator->address(),
                               .config_path = directory.config(),
                               .overrides = {},
                               .connection = connection.Arguments(),
                               .num_workers = config.elastic.workers};
  AgentHost agent(config, directory, settings, *link);
  const std::stop_callback on_stop(stop_signal.token(),
                                   [&] { coordinator->shell().RequestStop(stop_signal.received()); });
  CoordinatorShell::Outcome outcome = coordinator->Wait();
  agent.OnMessage(EndMessage{outcome.exit_code, outcome.reason});  // it may not have come to hear it before
  agent.Wait();
  return outcome;
}

}  // namespace holdfast
