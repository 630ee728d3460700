#pragma once
// Carries out a transfer plan: fills the state of a new world from what its members held in the world before.

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/step_progress.h"
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

/// What is here already is copied, and what is lacking is fetched. Every rank calls it alike. Returns the bytes
/// received here. The old state is not changed.
absl::StatusOr<int64_t> TransferState(const TransferArguments& arguments);

/// The same in two parts, after the first of which a step can begin: what ranks serve, and their mirrors. The first
/// also copies what is here already. The second may run beside whatever does not change the states or read the mirrors,
/// over a communicator of its own; `progress` grows with it.
absl::StatusOr<int64_t> TransferServed(const TransferArguments& arguments);
absl::StatusOr<int64_t> TransferMirrors(const TransferArguments& arguments, StepProgress& progress);
/// How many bytes the second one receives here.
int64_t MirrorBytes(const TransferArguments& arguments, int rank);

}  // namespace holdfast
