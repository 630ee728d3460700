#include "elastic/launch/mpi_launcher.h"

#include <chrono>
#include <cstdlib>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/coordinator_server.h"
#include "elastic/wire/grpc_link.h"
#include "elastic/wire/token.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

absl::StatusOr<Worker::Exit> WorkFor(const std::string& coordinator, const Config& config,
                                     const RunDirectory& directory, MpiJob& job, TrainingRuntime& runtime,
                                     const StopSignal* stop) {
  ASSIGN_OR_RETURN(const auto link,
                   MakeControlLink({.coordinator = coordinator,
                                    .token_file = directory.token(),
                                    .tls = {},
                                    .counted_on = std::chrono::milliseconds(config.elastic.lost_state_timeout_ms)}));
  const Worker::Exit exit = RunWorker(config, directory, job.identity(), runtime, *link, stop, job.Peers(config));
  runtime.trainer.reset();  // and its communicators, before the end of MPI
  return exit;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiLauncher>> MpiLauncher::Open(const Config& config, const RunDirectory& directory,
                                                               MpiJob& job, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(auto runtime, OpenTraining(config, job.slot(), stop));
  return std::unique_ptr<MpiLauncher>(new MpiLauncher(config, directory, std::move(runtime), job));
}

absl::StatusOr<CoordinatorShell::Outcome> MpiLauncher::Run(const PreparedRun& run, const StopSignal& stop) {
  ControlServerOptions server{
      .address = absl::StrCat(job_.on_one_machine() ? "127.0.0.1" : job_.host(), ":0"), .token = "", .tls = {}};
  ASSIGN_OR_RETURN(server.token, MakeTokenFile(directory_.token()));
  ASSIGN_OR_RETURN(const auto coordinator,
                   CoordinatorServer::Start(config_, directory_, StartOf(config_, run, outline().data), server));
  std::string address = coordinator->address();
  RETURN_IF_ERROR(job_.Announce(&address));
  const std::stop_callback on_stop(stop.token(), [&] { coordinator->shell().RequestStop(stop.received()); });
  // If another coordinator has the run, it does not reach these workers, who would wait for ever.
  const std::jthread watch([&shell = coordinator->shell()](const std::stop_token& over) {
    const auto outcome = shell.Wait(over);
    if (outcome.has_value() && outcome->goes_on) MpiJob::End(outcome->exit_code, outcome->reason);
  });
  RETURN_IF_ERROR(WorkFor(address, config_, directory_, job_, *runtime_, nullptr).status());
  return coordinator->Wait();
}

absl::StatusOr<Worker::Exit> FollowMpiJob(const Config& config, const RunDirectory& directory, MpiJob& job,
                                          const StopSignal& stop, StopOfStart& start) {
  ASSIGN_OR_RETURN(const auto runtime, OpenTraining(config, job.slot(), start.token()));
  RETURN_IF_ERROR(start.End());
  std::string address;
  RETURN_IF_ERROR(job.Announce(&address));
  if (address.empty()) return Worker::Exit{.code = EXIT_FAILURE, .reason = ""};  // rank 0 has said why
  return WorkFor(address, config, directory, job, *runtime, &stop);
}

}  // namespace holdfast
