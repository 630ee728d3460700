#include "elastic/agent/worker_commands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/processors.h"

namespace holdfast {
namespace {

int64_t WorkersOfHost(const AgentSettings& settings) {
  return std::max(settings.num_workers, settings.workers_of_host);
}

std::vector<std::string> ArgumentsOf(const std::string& worker, int64_t index, const RunDirectory& directory,
                                     const AgentSettings& settings, int64_t threads) {
  std::vector<std::string> arguments{settings.binary, "worker", settings.config_path};
  const auto add = [&](const char* option, const std::string& value) {
    arguments.insert(arguments.end(), {option, value});
  };
  add("--run-dir", directory.root());
  add("--name", worker);
  add("--node", settings.node);
  add("--host", settings.host);
  if (!settings.coordinator.empty()) add("--coordinator", settings.coordinator);
  add("--workers-here", absl::StrCat(WorkersOfHost(settings)));
  add("--local-index", absl::StrCat(settings.first_of_host + index));
  arguments.insert(arguments.end(), settings.connection.begin(), settings.connection.end());
  for (const std::string& override : settings.overrides) add("--set", override);
  add("--set", absl::StrCat("train.threads=", threads));
  return arguments;
}

}  // namespace

std::string WorkerName(const std::string& node, int64_t index) { return absl::StrCat(node, "/", index); }

std::vector<ChildCommand> WorkerCommands(const Config& config, const RunDirectory& directory,
                                         const AgentSettings& settings) {
  // Workers of one machine share its processors, unless the config says how many each may use.
  const int64_t threads = config.train.threads > 0
                              ? config.train.threads
                              : std::max<int64_t>(1, AvailableProcessors() / WorkersOfHost(settings));
  std::vector<ChildCommand> commands;
  for (int64_t i = 0; i < settings.num_workers; ++i) {
    ChildCommand command;
    command.name = WorkerName(settings.node, i);
    command.log_path = absl::StrCat(directory.logs(), "/", settings.node, "-", i, ".log");
    command.argv = ArgumentsOf(command.name, i, directory, settings, threads);
    if (config.parallel.transport == Transport::kNccl) {
      // Why: nccl_communicator.h.
      command.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", "32");
      command.environment.emplace_back("CUDA_MODULE_LOADING", "EAGER");
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace holdfast
