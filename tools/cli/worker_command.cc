#include "tools/cli/worker_command.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stop_token>

#include "absl/strings/str_cat.h"
#include "elastic/agent/agent.h"
#include "elastic/launch/run_of_agent.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/status.h"
#include "tools/cli/connection_arguments.h"
#include "tools/cli/stoppable.h"

namespace holdfast {

absl::StatusOr<int> WorkerCommand::Run() const {
  RunArguments what = run;
  RETURN_IF_ERROR(what.config.Read());
  // Before any other thread. A scheduler that signals all processes means the coordinator and the agents; if this node
  // alone is meant, the agent takes its workers out of the run. Without an agent there is nobody else to say it.
  StopSignal stop_signal(HasAgent() ? getppid() : 0);
  StopOfStart start_stop(stop_signal);
  // Before the config, as a new coordinator may be about to replace the run whose steps and arithmetic that would keep.
  WorkerIdentity member = identity;
  member.is_alone = !HasAgent();
  ASSIGN_OR_RETURN(member.run, RunOfAgent(STDIN_FILENO));
  ASSIGN_OR_RETURN(const Config config, what.Load());
  const auto runtime = OpenTraining(config, {.workers_here = workers_here, .local_index = local_index},
                                    HasAgent() ? std::stop_token() : start_stop.token());
  const absl::Status stopped = start_stop.End();
  if (!HasAgent() && !stopped.ok()) {
    const absl::Status& error = runtime.ok() ? stopped : runtime.status();
    if (const auto end = EndOfStart(stop_signal, start_stop, error)) return *end;
  }
  // A token beyond the vocabulary, a file that is not the one that was indexed, a table for another library: another
  // start would find it again.
  if (absl::IsOutOfRange(runtime.status()) || absl::IsFailedPrecondition(runtime.status()) ||
      absl::IsInvalidArgument(runtime.status())) {
    return UsageError(absl::StrCat("error: ", runtime.status().message()));
  }
  RETURN_IF_ERROR(runtime.status());
  const RunDirectory directory = run.Directory(config);
  std::signal(kEndsBeforeJoining, SIG_IGN);
  ConnectionOptions coordinators = connection;
  RETURN_IF_ERROR(LookForLeader(directory, coordinators));
  coordinators.counted_on = std::chrono::milliseconds(config.elastic.lost_state_timeout_ms);
  ASSIGN_OR_RETURN(const auto link, MakeControlLink(coordinators));
  const Worker::Exit exit = RunWorker(config, directory, member, **runtime, *link, &stop_signal);
  if (exit.refused) return UsageError("error: " + exit.reason);
  std::printf("%s\n", exit.reason.c_str());
  const bool is_told = exit.code == 0 || exit.code > 128 || (member.is_alone && exit.code == kExitRetry);
  return is_told ? exit.code : kRunFailedExit;
}

void WorkerCommand::AddTo(CLI::App& command) {
  run.AddTo(command);
  command.add_option("--name", identity.name)->required();
  command.add_option("--node", identity.node)->required();
  command.add_option("--host", identity.host)->required();
  command.add_option("--workers-here", workers_here);
  command.add_option("--local-index", local_index);
  AddConnectionOptions(command, connection);
}

}  // namespace holdfast
