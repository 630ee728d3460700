#pragma once
// holdfast agent: starts and watches the workers of one machine.

#include <cstdint>
#include <string>

#include "elastic/agent/agent_shell.h"
#include "elastic/wire/grpc_link.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct AgentCommand {
  RunArguments run;
  ConnectionOptions connection;
  std::string node = DefaultNode(), host;  // host: empty = the address on the way to the coordinator
  int64_t workers = 1;
  int64_t workers_of_host = 0, first_of_host = 0;
  bool while_stdin_open = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
