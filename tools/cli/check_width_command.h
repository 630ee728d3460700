#pragma once
// holdfast check-width: whether a model's parametrization carries what is best for a small model to a larger one. Exit
// codes: 0 it does, 1 it does not, 2 a bad argument.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct CheckWidthCommand {
  ConfigArguments config;
  std::vector<int64_t> widths, depths;  // empty: as it says in AddTo
  int64_t steps = 10, seeds = 8;
  double slope = 0.05;
  std::string out;  // directory for pictures; empty: none

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  struct Axis;  // width or depth
  /// Measures, prints and draws; whether all slopes are small enough.
  absl::StatusOr<bool> Check(const Config& checked, const Axis& axis) const;
};

}  // namespace holdfast
