// holdfast worker: one worker process, started by an agent.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "elastic/agent/agent.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/status.h"
#include "tools/command.h"
#include "tools/connection_options.h"
#include "tools/run_arguments.h"
#include "tools/training_session.h"

namespace holdfast {
namespace {

struct WorkerArguments {
  RunArguments run;
  ConnectionOptions connection;
  WorkerIdentity identity;
  int64_t workers_here = 1;
};

/// Of "node/3" 3.
int64_t LocalIndex(const WorkerIdentity& identity) {
  int64_t index = 0;
  const size_t slash = identity.name.rfind('/');
  return absl::SimpleAtoi(identity.name.substr(slash + 1), &index) ? index : 0;
}

absl::StatusOr<int> Work(const WorkerArguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  HF_ASSIGN_OR_RETURN(const Config config, arguments.run.Load());
  HF_ASSIGN_OR_RETURN(const auto session, OpenTrainingSession(config, arguments.workers_here,
                                                              /*check_only=*/false, LocalIndex(arguments.identity)));
  HF_ASSIGN_OR_RETURN(const auto link, MakeControlLink(arguments.connection));
  const RunDirectory directory = arguments.run.Directory(config);
  const Worker::Exit exit = RunWorker(config, directory, arguments.identity, *session, *link, &stop_signal);
  if (exit.refused) return UsageError("error: " + exit.reason);
  std::printf("%s\n", exit.reason.c_str());
  return exit.code == 0 || exit.code > 128 ? exit.code : kRunFailedExit;
}

}  // namespace

void AddWorkerCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("worker", "One worker process; started by an agent");
  command->group("");  // not for people
  auto arguments = std::make_shared<WorkerArguments>();
  arguments->run.AddTo(*command);
  command->add_option("--name", arguments->identity.name)->required();
  command->add_option("--node", arguments->identity.node)->required();
  command->add_option("--host", arguments->identity.host)->required();
  command->add_option("--workers-here", arguments->workers_here);
  arguments->connection.AddTo(*command);
  command->callback([arguments, &body] { body = [arguments] { return Work(*arguments); }; });
}

}  // namespace holdfast
