#include "tools/cli/coordinator_command.h"

#include <cstdio>

#include "elastic/launch/server_launcher.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/status.h"
#include "tools/cli/connection_arguments.h"

namespace holdfast {

absl::StatusOr<int> CoordinatorCommand::Run() const {
  StopSignal stop_signal;  // before any other thread
  ASSIGN_OR_RETURN(const Config config, run.Load());
  const RunDirectory directory = run.Directory(config);
  std::string resume_text;
  const auto on_listening = [&](const std::string& address) {
    std::printf("listening at %s; run directory %s\n%s", address.c_str(), directory.root().c_str(),
                resume_text.c_str());
    std::fflush(stdout);
  };
  ASSIGN_OR_RETURN(
      const auto launcher,
      ServerLauncher::Open(config, directory,
                           {.listen = listen, .token_file = token_file, .tls = tls, .on_listening = on_listening}));
  ASSIGN_OR_RETURN(const PreparedRun prepared,
                   PrepareRun(config, directory, launcher->outline().layout,
                              {.overwrite = start.overwrite, .resume = start.resume, .workers_are_new = new_workers}));
  resume_text = ResumeText(prepared);
  ASSIGN_OR_RETURN(const CoordinatorShell::Outcome outcome, launcher->Run(prepared, stop_signal));
  if (outcome.exit_code != 0 && outcome.exit_code <= 128) return absl::InternalError(outcome.reason);
  std::printf("%s\n", outcome.reason.c_str());
  return outcome.exit_code;
}

void CoordinatorCommand::AddTo(CLI::App& command) {
  run.AddTo(command);
  command.add_option("--listen", listen,
                     "HOST[:PORT] to listen at; beyond loopback clients need the run's token or TLS");
  command.add_option("--token-file", token_file,
                     "file with a secret, mode 0600; default: one is made in the run directory");
  AddTlsOptions(command, tls);
  command.add_flag("--new-workers", new_workers,
                   "no worker of an earlier life of the run is alive: do not wait for what it may hold");
  start.AddTo(command);
}

}  // namespace holdfast
