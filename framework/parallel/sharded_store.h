#pragma once
// What the passes of training need, in a world of any size: weights come from the rank's own state or are gathered from
// its replica group (Gatherer), gradients are summed over microbatches here and over ranks elsewhere (Reducer). In a
// world of one neither is needed: weights are simply there, and gradients are complete when their microbatches are
// summed. A pass asks the WaveStore of its lane. One store lives as long as a world.

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "framework/nn/model.h"
#include "framework/nn/unit_schedule.h"
#include "framework/parallel/chunk_squares.h"
#include "framework/parallel/gatherer.h"
#include "framework/parallel/gradient_sum.h"
#include "framework/parallel/group_exchange.h"
#include "framework/parallel/reducer.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/step_progress.h"
#include "framework/parallel/wave_store.h"

namespace holdfast {

/// Connections of one world; each is used by one thread at a time.
struct WorldCommunicators {
  std::unique_ptr<Communicator> world;  // null in a world of one
  std::unique_ptr<Communicator> group;  // the members of this rank's replica group, as Placement::Group orders them;
                                        // null if it is alone there
  std::unique_ptr<Communicator> mirrors = nullptr;  // the world again, to fill mirrors beside a step; null: they are
                                                    // filled before it
  std::unique_ptr<Communicator> parts = nullptr;    // the group again, for rows of units that are computed in parts;
                                                    // null: no unit is
};

/// Thread-safety: Abort from any thread, everything else from one.
class ShardedStore {
 public:
  struct Dependencies {
    const Placement* placement = nullptr;
    int rank = 0;
    SumOrder order = SumOrder::Tree();  // of gradients
    bool in_parts = false;              // units that are cut at parts are computed where they lie
    bool two_at_a_time = false;         // and of a step's waves, each of which is a pass, two take turns
    ShardedState* state = nullptr;
    WorldCommunicators* communicators = nullptr;
    Device* device = nullptr;
    Stream* stream = nullptr;
    StepProgress* progress = nullptr;
    std::chrono::milliseconds timeout{0};  // of one transfer
  };

  /// Everything in `dependencies` must outlive the store.
  static absl::StatusOr<std::unique_ptr<ShardedStore>> Create(const Dependencies& dependencies);

  static ReductionMode Mode(const Placement& placement);

  /// A step of training: passes of `schedule` over the microbatches that `plan` gives this rank, wave by wave. All
  /// ranks call it alike. From here on calls fail with Cancelled once `stop` is requested.
  absl::Status BeginStep(const ReductionPlan& plan, const UnitSchedule& schedule, std::stop_token stop);
  /// The waves from `wave` on that are under way together: one, or two, of lanes 0 and 1. This rank's range of each may
  /// be empty. Returns how many.
  int BeginWaves(int wave);
  /// Waits until the gradients of all ranks are summed and nobody reads weights any more.
  absl::Status EndStep();

  /// Or passes without gradients, in lane 0. Every rank of the group makes or skips as many.
  absl::Status BeginEvaluation(int64_t passes, const UnitSchedule& schedule, std::stop_token stop);

  /// For the passes of a wave, or of the evaluation, at hand.
  WaveStore& lane(int lane = 0) { return *lanes_[static_cast<size_t>(lane)]; }
  /// Where two waves are under way together.
  PassTurns& turns() { return *turns_; }

  /// After EndStep, until the next BeginStep: gradients of all chunks held here; sums of squares of those summed here,
  /// by chunk.
  std::vector<GradientPiece> Gradients();
  const std::map<int64_t, double>& chunk_sums() const;

  /// Makes the step under way end soon, here and elsewhere. The store is of no use afterwards.
  void Abort(const std::string& reason);

  /// Sent since BeginStep by what is computed in parts.
  ExchangedBytes exchanged_bytes() const {
    return group_exchange_ != nullptr ? group_exchange_->bytes() : ExchangedBytes();
  }
  /// Seconds since BeginStep spent waiting for other ranks.
  double wait_seconds() const {
    return step_.wait_seconds + (group_exchange_ != nullptr ? group_exchange_->wait_seconds() : 0);
  }

 private:
  explicit ShardedStore(const Dependencies& dependencies);
  void DescribeParts();
  void CreateLanes();
  Exchange& exchange();

  Dependencies deps_;
  const ParameterLayout& layout_;
  GradientBuffers buffers_;
  std::unique_ptr<Gatherer> gatherer_;    // null if this rank's group is itself
  std::unique_ptr<Reducer> reducer_;      // null in a world of one
  std::map<int64_t, double> chunk_sums_;  // in a world of one
  ChunkSquares squares_;
  WaveStore::Step step_;
  std::vector<WaveStore::UnitParts> unit_parts_;   // by unit
  std::vector<int> group_, nodes_;                 // this rank's group; by member, numbered as they come
  LocalExchange local_exchange_;                   // of a rank that is alone in its group
  std::unique_ptr<GroupExchange> group_exchange_;  // else
  std::unique_ptr<PassTurns> turns_;               // null if there are never two passes at a time
  std::vector<std::unique_ptr<WaveStore>> lanes_;  // use all of the above
};

}  // namespace holdfast
