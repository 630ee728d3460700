#pragma once
// holdfast tune: the fastest of cuBLASLt's algorithms for each matrix product of a config, by the clock, for
// train.gemm_table.

#include <string>

#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct TuneCommand {
  ConfigArguments config;
  std::string out;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
