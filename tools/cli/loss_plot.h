#pragma once
// The loss curve of a run directory, as a file and for the terminal.

#include "absl/status/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Writes directory.loss_plot() from metrics.jsonl and the validations in events.jsonl, and prints the curve.
absl::Status PlotLoss(const RunDirectory& directory);

}  // namespace holdfast
