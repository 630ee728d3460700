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
  const ShardedState* old_state = nullptr;  // this rank's state in the source world; null if it was not there
  ShardedState* new_state = nullptr;
  Communicator* world = nullptr;  // null in a world of one
  std::chrono::milliseconds timeout{0};
};

/// In two parts, after the first of which a step can begin: what ranks serve, and their mirrors (SplitByUse of the same
/// plan on every rank). Every rank calls them alike; the bytes received here are returned, the old state is not
/// changed. The first also copies, beside it, what is here already. The second may run beside whatever does not change
/// the states or read the mirrors, over a communicator of its own; `progress` grows with it.
absl::StatusOr<int64_t> TransferServed(const TransferArguments& arguments, const std::vector<ChunkTransfer>& served);
absl::StatusOr<int64_t> TransferMirrors(const TransferArguments& arguments, const std::vector<ChunkTransfer>& mirrored,
                                        StepProgress& progress);
/// Of the chunks that `rank` receives.
int64_t ReceivedBytes(const StateLayout& layout, const std::vector<ChunkTransfer>& transfers, int rank);

}  // namespace holdfast
