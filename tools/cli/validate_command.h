#pragma once
// holdfast validate: what a config means, before a run is started with it.

#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct ValidateCommand {
  ConfigArguments config;

  void AddTo(CLI::App& command) { config.AddTo(command); }
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
