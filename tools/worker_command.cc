// holdfast worker: one worker process, started by an agent.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "elastic/agent/agent.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "tools/command.h"
#include "tools/connection_options.h"
#include "tools/gemm_table.h"
#include "tools/training_session.h"

namespace holdfast {
namespace {

struct Arguments {
  std::string config_path, run_dir;
  std::vector<std::string> overrides;
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

absl::StatusOr<int> Work(const Arguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  absl::StatusOr<Config> config = LoadConfig(arguments.config_path, arguments.overrides);
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", std::string(config.status().message()).c_str());
    return kExitUsage;
  }
  HF_RETURN_IF_ERROR(ResolveGemmTable(&config->train));
  HF_ASSIGN_OR_RETURN(const auto session, OpenTrainingSession(*config, arguments.workers_here,
                                                              /*check_only=*/false, LocalIndex(arguments.identity)));
  HF_ASSIGN_OR_RETURN(const auto link, MakeControlLink(arguments.connection));
  const RunDirectory directory(arguments.run_dir);
  const Worker::Exit exit = RunWorker(*config, directory, arguments.identity, *session, *link, &stop_signal);
  if (exit.refused) {
    std::fprintf(stderr, "error: %s\n", exit.reason.c_str());
    return kExitUsage;
  }
  std::printf("%s\n", exit.reason.c_str());
  return exit.code == 0 || exit.code > 128 ? exit.code : kRunFailedExit;
}

}  // namespace

void AddWorkerCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("worker", "One worker process; started by an agent");
  command->group("");  // not for people
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config_path)->required();
  command->add_option("--set", arguments->overrides)->allow_extra_args(false);
  command->add_option("--run-dir", arguments->run_dir)->required();
  command->add_option("--name", arguments->identity.name)->required();
  command->add_option("--node", arguments->identity.node)->required();
  command->add_option("--host", arguments->identity.host)->required();
  command->add_option("--workers-here", arguments->workers_here);
  arguments->connection.AddTo(*command);
  command->callback([arguments, &body] { body = [arguments] { return Work(*arguments); }; });
}

}  // namespace holdfast
