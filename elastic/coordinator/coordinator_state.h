#pragma once
// What a coordinator leaves behind for the next one of its run, besides the record: coordinator.json.

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/control/worker_history.h"
#include "framework/base/branch.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

struct CoordinatorState {
  uint64_t generation = 0;  // the last one used
  Branch branch;
  // As PersistAction has them:
  std::map<std::string, uint64_t> contradicted = {};
  std::map<std::string, Contradictions> contradictions = {};
};

/// Zeros if there is none. DataLoss, saying what to do, if it is not one.
absl::StatusOr<CoordinatorState> ReadCoordinatorState(const RunDirectory& directory);

/// What a coordinator appends to the file for each change: through its own handle, so that one which was replaced
/// (RunDirectory::TakeOver) cannot undo what the other has stored.
std::string CoordinatorStateLine(const CoordinatorState& state);

/// Replaces the file. Durable when it returns. For a coordinator that starts.
absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state);

}  // namespace holdfast
