#pragma once
// holdfast compare: whether two runs are the same bits. Exit codes like those of diff and cmp: 0 equal, 1 different, 2
// could not tell.

#include <string>

#include "tools/cli/command.h"

namespace holdfast {

struct CompareCommand {
  std::string run_a, run_b;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
