#pragma once
// holdfast compare: whether runs are the same bits, each compared with the first. Exit codes like those of diff and
// cmp: 0 equal, 1 different, 2 could not tell.

#include <string>
#include <vector>

#include "tools/cli/command.h"

namespace holdfast {

struct CompareCommand {
  std::string first;
  std::vector<std::string> others;
  std::string out;  // for a picture of all losses; empty: none

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
