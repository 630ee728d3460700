#include "tools/cli/worker_command.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "elastic/agent/agent.h"
#include "elastic/launch/run_of_agent.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/status.h"
#include "tools/cli/connection_arguments.h"

namespace holdfast {

absl::StatusOr<int> WorkerCommand::Run() const {
  // Before any other thread. A scheduler that signals all processes means the coordinator and the agents; if this node
  // alone is meant, the agent takes its workers out of the run.
  StopSignal stop_signal(getppid());
  ASSIGN_OR_RETURN(const Config config, run.Load());
  const auto runtime = OpenTraining(config, {.workers_here = workers_here, .local_index = local_index});
  // A token beyond the vocabulary, a file that is not the one that was indexed, a table for another library: another
  // start would find it again.
  if (absl::IsOutOfRange(runtime.status()) || absl::IsFailedPrecondition(runtime.status()) ||
      absl::IsInvalidArgument(runtime.status())) {
    return UsageError(absl::StrCat("error: ", runtime.status().message()));
  }
  RETURN_IF_ERROR(runtime.status());
  const RunDirectory directory = run.Directory(config);
  WorkerIdentity member = identity;
  ASSIGN_OR_RETURN(member.run, RunOfAgent(STDIN_FILENO));
  std::signal(kEndsBeforeJoining, SIG_IGN);
  ConnectionOptions coordinators = connection;
  RETURN_IF_ERROR(LookForLeader(directory, coordinators));
  ASSIGN_OR_RETURN(const auto link, MakeControlLink(coordinators));
  const Worker::Exit exit = RunWorker(config, directory, member, **runtime, *link, &stop_signal);
  if (exit.refused) return UsageError("error: " + exit.reason);
  std::printf("%s\n", exit.reason.c_str());
  return exit.code == 0 || exit.code > 128 ? exit.code : kRunFailedExit;
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
