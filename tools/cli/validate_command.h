#pragma once
// holdfast validate: what a config means, before a run is started with it.

#include <cstdint>

#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct ValidateCommand {
  ConfigArguments config;
  int64_t workers = 0;  // 0 = elastic.workers

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
