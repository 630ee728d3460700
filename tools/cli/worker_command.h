#pragma once
// holdfast worker: one worker process, started by an agent.

#include <cstdint>

#include "elastic/launch/run_worker.h"
#include "elastic/wire/grpc_link.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct WorkerCommand {
  RunArguments run;
  ConnectionOptions connection;
  WorkerIdentity identity;
  int64_t workers_here = 1, local_index = 0;  // on this machine

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
