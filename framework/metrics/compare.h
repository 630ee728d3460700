#pragma once
// Whether two runs are the same bits: the loss, gradient norm, state digest and statistics of every step both have
// committed.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// The first step that differs. Values are text: hexadecimal bits or digest, "none" for a step that a run lacks.
struct RunDifference {
  int64_t step = 0;
  std::string field;  // of metrics.jsonl
  std::string value_a, value_b;
  const char* shown = "loss";  // which number is shown beside the values: the gradient norm if that differs
  float shown_a = 0, shown_b = 0;
};

struct RunComparison {
  int64_t steps_a = 0, steps_b = 0;
  int64_t steps_compared = 0;  // without the one that differs
  int64_t digests_compared = 0;
  /// Names of statistics that only one of the runs has in a step that was compared; sorted. They are no difference: a
  /// run may say more than another of the same bits.
  std::set<std::string> only_a = {}, only_b = {};
  std::optional<RunDifference> difference;
};

/// Compares every step of the shorter run with the other's step of the same number, in order, up to the first
/// difference. A digest and a statistic are compared where both have one. InvalidArgument if a run has no step: nothing
/// would be shown.
absl::StatusOr<RunComparison> CompareRuns(const std::vector<StepMetrics>& a, const std::vector<StepMetrics>& b);

/// Some lines of text with a newline at the end of each.
std::string Describe(const RunComparison& comparison);

}  // namespace holdfast
