#pragma once
// What a fit said of a run before it was made, as a JSON file ("holdfast scaling prediction", version 1).

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/scaling/fit.h"

namespace holdfast {

struct SavedPrediction {
  std::string run_name;
  uint64_t config_digest = 0, fit_digest = 0;
  RunSize size;
  double level = 0.9;
  LossPrediction prediction;
  absl::Time when;  // to the second
};

std::string ToJson(const SavedPrediction& saved);
/// InvalidArgument, with path and key, if it is no such file.
absl::StatusOr<SavedPrediction> ReadPrediction(const std::string& path);

/// How a run ended, beside what was predicted: some lines of text.
std::string DescribeOutcome(const SavedPrediction& saved, const Observation& run);
bool IsWithin(const Interval& interval, double value);

}  // namespace holdfast
