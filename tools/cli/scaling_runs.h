#pragma once
// Runs and configs as scaling laws see them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "elastic/sweep/sweep_plan.h"
#include "framework/config/config.h"
#include "framework/scaling/observation.h"
#include "tools/cli/mixed_runs.h"

namespace holdfast {

/// All parameters, those used for a token, and the tokens of all steps.
RunSize RunSizeOf(const Config& config);

/// Which run a config is, wherever it is computed: framework/config/decides.h's digest, of any kernels.
uint64_t RunDigestOf(const Config& config);

/// Why a law says nothing of the loss of a run of `config`: "trains a part of its model only"; empty if it does.
std::string NoLawBecause(const Config& config);

struct FinishedRun {
  Observation observation;
  Config config;
  std::string loss_from;    // "validation after step 240", "mean of training steps 229 to 240"
  std::string data_digest;  // RunEnding::data_digest
  // "the first 32 sequences of 64 tokens of data.validation", "all sequences of ..."; empty without validation.
  std::string validated_on;
};

/// A run of `config` that has ended after all of its steps, or that many of them, with this loss. FLOPs are those that
/// model FLOPs utilisation counts (models/plan.h).
Observation ObservationOf(const Config& config, double tokens, double loss, const std::string& name);

/// In the directory of a sweep, as CSV (framework/scaling/observation.h).
inline constexpr char kTrialObservationsFile[] = "scaling.csv";

/// How many tokens a pass over the training data of a config is, by the headers of the files, each looked at once.
class PassTokens {
 public:
  /// None if they cannot be read.
  std::optional<double> Of(const Config& config);

 private:
  std::map<std::pair<std::vector<std::string>, int64_t>, std::optional<double>> known_;  // by files and their sequences
};

/// Of a sweep by a loss: its measured trials from random weights whose learning rate had come to its end, as laws need
/// it.
std::vector<Observation> TrialObservations(const SweepConfig& config, const SweepPlan& plan, PassTokens& passes);

/// What is left of the runs of trials.
struct TrialRuns {
  std::vector<MixableRun> runs;
  /// MixableKeys() of the sweep, if runs of these trials are gone: they may differ in them.
  std::vector<std::string> unknown_keys;
};

/// Of what TrialObservations() gave of the sweep in a directory.
TrialRuns RunsOfTrials(const std::string& sweep_dir, absl::Span<const Observation> trials);

/// Of a run directory: the loss of the validation after its last step, else the mean training loss of the last
/// twentieth of its steps, at least ten. InvalidArgument, naming it, if it is no run, has not ended, or before its
/// learning rate had come down, where only a part of its model was trained, or where it began with a saved model;
/// DataLoss if lines of its steps are missing.
absl::StatusOr<FinishedRun> ReadFinishedRun(const std::string& run_dir);

}  // namespace holdfast
