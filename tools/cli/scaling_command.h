#pragma once
// holdfast scaling: laws of the loss over model size and tokens, fitted to runs; what follows from them, and how far
// off they were (framework/scaling).

#include <cstdint>
#include <string>
#include <vector>

#include "framework/scaling/fit.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct ScalingFitCommand {
  std::vector<std::string> runs;  // run directories, directories of sweeps and CSV files
  std::string form = "chinchilla", out;
  FitOptions options;
  std::vector<double> budgets;
  int threads = 1;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

struct ScalingOptimumCommand {
  std::string fit;
  std::vector<double> budgets;
  double ratio = 1;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

struct ScalingNextCommand {
  std::string fit;
  double parameters = 0, active = 0, tokens = 0, flops_max = 0;
  double narrowing_percent_min = 10;
  int rows = 10;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

struct ScalingPredictCommand {
  std::string fit, out;
  bool overwrite = false;
  ConfigArguments config;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

/// Exit codes: 0 within the interval, 1 outside, 2 could not tell.
struct ScalingCompareCommand {
  std::string prediction, run_dir;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
