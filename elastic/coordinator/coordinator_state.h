#pragma once
// What a coordinator leaves behind for the next one of its run, besides the record: coordinator.json.

#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/base/branch.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct CoordinatorState {
  uint64_t generation = 0;  // the last one used
  Branch branch;
};

/// Zeros if there is none. DataLoss, saying what to do, if it is not one.
absl::StatusOr<CoordinatorState> ReadCoordinatorState(const RunDirectory& directory);

/// Durable when it returns.
absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state);

}  // namespace holdfast
