#include "elastic/launch/in_process_launcher.h"

#include <unistd.h>

#include <stop_token>

#include "elastic/coordinator/coordinator_runtime.h"
#include "elastic/coordinator/in_process_link.h"
#include "elastic/launch/run_worker.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<InProcessLauncher>> InProcessLauncher::Open(const Config& config,
                                                                           const RunDirectory& directory,
                                                                           const std::stop_token& stop) {
  ASSIGN_OR_RETURN(auto runtime, OpenTraining(config, {}, stop));
  return std::unique_ptr<InProcessLauncher>(new InProcessLauncher(config, directory, std::move(runtime)));
}

absl::StatusOr<CoordinatorShell::Outcome> InProcessLauncher::Run(const PreparedRun& run, const StopSignal& stop) {
  unlink(directory_.coordinator_address().c_str());  // of a coordinator that was killed: this one has none
  InProcessLink link;
  ASSIGN_OR_RETURN(const auto coordinator,
                   CoordinatorRuntime::Create(config_, directory_, StartOf(config_, run, outline().data), link));
  CoordinatorShell& shell = coordinator->shell();
  link.Attach(shell);
  const std::stop_callback on_stop(stop.token(), [&] { shell.RequestStop(stop.received()); });
  RunWorker(config_, directory_, {}, *runtime_, link);
  return shell.Wait();
}

}  // namespace holdfast
