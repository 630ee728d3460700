#pragma once
// A rank's place in one world: the placement, the state it holds by it, and the store that serves a model from it.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/parallel/sharded_store.h"
#include "framework/parallel/whole_updates.h"

namespace holdfast {

class PlacedState {
 public:
  struct Options {
    Placement placement;
    int rank = 0;
    ParallelConfig parallel;
    SumOrder order = SumOrder::Tree();  // of gradients
    bool in_parts = false;              // units that are cut at parts are computed where they lie
    bool two_at_a_time = false;         // see ShardedStore::Dependencies
    std::chrono::milliseconds timeout{0};
    CpuSide cpu = {};                      // as ShardedState::Options has it
    const Optimizer* optimizer = nullptr;  // null: nothing is updated
  };

  /// State uninitialised. `layout`, `device`, `stream` and `progress` must outlive it.
  static absl::StatusOr<std::unique_ptr<PlacedState>> Create(const StateLayout& layout, DType compute_dtype,
                                                             const Options& options, WorldCommunicators communicators,
                                                             Device& device, Stream& stream, StepProgress& progress);

  const Placement& placement() const { return placement_; }
  const ShardMap& map() const { return map_; }
  int rank() const { return rank_; }
  ShardedState& state() { return *state_; }
  ShardedStore& store() { return *store_; }
  WholeUpdates& whole_updates() { return *whole_updates_; }
  Communicator* world() const { return communicators_.world.get(); }

  /// Keeps the state and gives everything else back; nothing but state() may be used afterwards.
  void KeepStateOnly();

 private:
  PlacedState(const StateLayout& layout, DType compute_dtype, const Options& options, WorldCommunicators communicators);

  int rank_;
  Placement placement_;
  ShardMap map_;
  WorldCommunicators communicators_;
  std::optional<ShardedState> state_;
  std::unique_ptr<ShardedStore> store_;          // uses all of the above
  std::unique_ptr<WholeUpdates> whole_updates_;  // uses the state and a communicator
};

}  // namespace holdfast
