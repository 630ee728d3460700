#pragma once
// The curves of a run directory: losses, as a file and for the terminal, and loads of experts, as a file.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Writes directory.loss_plot() from metrics.jsonl and the validations in events.jsonl, with the number of workers
/// where it changed, and prints the curve.
absl::Status PlotLoss(const RunDirectory& directory);

/// Writes directory.load_plot() from metrics.jsonl: the most tokens of an expert over the mean, for each layer. False
/// if the model has no experts.
absl::StatusOr<bool> PlotExpertLoads(const RunDirectory& directory);

}  // namespace holdfast
