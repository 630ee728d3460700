#pragma once
// Carries out a transfer plan: fills the state of a new world from what its members held in the world before.

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/transfer_plan.h"

namespace holdfast {

struct TransferArguments {
  const ShardMap* source = nullptr;
  const ShardMap* target = nullptr;
  std::vector<int> source_ranks;            // as in PlanTransfer
  const ShardedState* old_state = nullptr;  // this rank's state in the source world; null if it was not there
  ShardedState* new_state = nullptr;
  Communicator* world = nullptr;  // null in a world of one
  std::chrono::milliseconds timeout{0};
};

/// Every rank calls it alike. Returns the bytes received here. The old state is not changed.
absl::StatusOr<int64_t> TransferState(const TransferArguments& arguments);

}  // namespace holdfast
