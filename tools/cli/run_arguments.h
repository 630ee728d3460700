#pragma once
// Arguments that commands about a run share: its config, and where it is kept.

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct ConfigArguments {
  std::string path;
  std::vector<std::string> overrides;
  std::optional<std::string> text = {};  // of the file at `path`, where that was read before

  /// Adds CONFIG.
  void AddTo(CLI::App& command);
  /// Adds --set.
  void AddOverrides(CLI::App& command);
  /// What --workers says, above any --set; 0 = it was not given.
  void SetWorkers(int64_t workers);
  /// Reads the file now, as what catches signals has to before that: a terminal or a pipe may be silent, and then a
  /// signal is to end the process. A UsageError if it is not there, or is no file.
  absl::Status Read();
  /// Resolved: with the steps that train.epochs is (models/runtime/epochs.h), the digest of its GEMM table
  /// (models/runtime/gemm_table.h) and the arithmetic that a new run takes (models/runtime/arithmetic.h). A UsageError
  /// lists everything that is wrong with it.
  absl::StatusOr<Config> Load() const;
  /// The same, but the training data need not be there yet: while they cannot be read, train.steps is as it is written,
  /// so 0 if only train.epochs is.
  absl::StatusOr<Config> LoadBeforeData() const;
  /// As it is written: its GEMM table and its data need not be there yet. Weights are those of train.init_from or, if
  /// it is not empty, of `model`, a saved model directory.
  absl::StatusOr<Config> LoadUnresolved(const std::string& model = "") const;
};

/// Adds --workers of processes on this machine.
void AddWorkersOption(CLI::App& command, int64_t& workers, const std::string& help);

/// A UsageError that names the keys if token files or tokenizer of the config cannot be used; DataLoss of one that is
/// damaged.
absl::Status CheckDataOf(const Config& config, const std::stop_token& stop = {});

/// A UsageError that names the key if a file with a secret of the config's alerts cannot be used.
absl::Status CheckAlertsOf(const Config& config);

struct RunArguments {
  ConfigArguments config;
  std::string run_dir;

  void AddTo(CLI::App& command);
  /// As ConfigArguments::Load, but a run that exists keeps its arithmetic, and the steps that its epochs were, unless
  /// it is overwritten; and with what parallel.experts: auto is here, so that a worker to which it is another is
  /// refused. A config that is another run's own, as its directory has it, is a UsageError where nothing but run.name
  /// in it says which run is meant.
  absl::StatusOr<Config> Load(bool overwrite = false, const std::stop_token& stop = {}) const;
  /// A UsageError if nobody has named the run (it is runs/run) and another one is there: one whose config differs in
  /// more of what decides bits than train.steps.
  absl::Status CheckIsSameRun(const Config& of_run) const;
  RunDirectory Directory(const Config& of_run) const;

 private:
  absl::Status CheckNamesOneRun(const RunDirectory& directory) const;
};

/// How `train` and `coordinator` begin a run.
struct StartArguments {
  bool overwrite = false;
  std::string resume;

  /// Adds --resume and --overwrite.
  void AddTo(CLI::App& command);
};

}  // namespace holdfast
