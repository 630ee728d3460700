#pragma once
// The UnitStore of training, in a world of any size: weights come from the rank's own state or are gathered from its
// replica group (Gatherer), gradients are summed over microbatches here and over ranks elsewhere (Reducer). In a world
// of one neither is needed: weights are simply there, and gradients are complete when their microbatches are summed.
// Where units that are cut at parts are computed where they lie, it is the PartStore, too. One store lives as long as a
// world.

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
class ShardedStore final : public UnitStore, private PartStore {
 public:
  struct Dependencies {
    const Placement* placement = nullptr;
    int rank = 0;
    SumOrder order = SumOrder::Tree();  // of gradients
    bool in_parts = false;              // units that are cut at parts are computed where they lie
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
  /// The next wave. This rank's range of it may be empty.
  void BeginWave(int wave);
  /// Waits until the gradients of all ranks are summed and nobody reads weights any more.
  absl::Status EndStep();

  /// Or passes without gradients. Every rank of the group makes or skips as many.
  absl::Status BeginEvaluation(int64_t passes, const UnitSchedule& schedule, std::stop_token stop);
  /// The next one, of which the ranks of the world with has_microbatch[rank] have a microbatch.
  void BeginEvaluationPass(const std::vector<bool>& has_microbatch);

  /// For the passes of the wave, or of the evaluation, at hand; null: units are acquired whole. Where it is not, a rank
  /// without a microbatch serves (Model::Serve) if serves_others().
  PartStore* parts() { return deps_.in_parts ? this : nullptr; }
  bool serves_others() const { return deps_.in_parts && !homes_.empty(); }

  /// After EndStep, until the next BeginStep: gradients of all chunks held here; sums of squares of those summed here,
  /// by chunk.
  std::vector<GradientPiece> Gradients();
  const std::map<int64_t, double>& chunk_sums() const;

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override;
  absl::Status EndGradients(int unit) override;

  /// Makes the step under way end soon, here and elsewhere. The store is of no use afterwards.
  void Abort(const std::string& reason);

  /// Sent since BeginStep by what is computed in parts.
  ExchangedBytes exchanged_bytes() const {
    return group_exchange_ != nullptr ? group_exchange_->bytes() : ExchangedBytes();
  }
  /// Seconds since BeginStep spent waiting for other ranks.
  double wait_seconds() const {
    return wait_seconds_ + (group_exchange_ != nullptr ? group_exchange_->wait_seconds() : 0);
  }

 private:
  /// Of a unit that is computed in parts.
  struct UnitParts {
    std::vector<int> servers;                  // by part: the member
    std::vector<int> parameters;               // of the parts served here
    std::vector<Tensor> weights, gradients;    // of each; gradients while they are open
    int64_t elements = 0;                      // of them all
    std::vector<GradientSum::Piece> finished;  // of homes, as they come
  };

  explicit ShardedStore(const Dependencies& dependencies);
  void DescribeParts();
  template <typename Wait>
  auto Waiting(Wait&& wait);

  Exchange& exchange() override;
  absl::Span<const int> homes() const override { return homes_; }
  absl::Span<const int> nodes() const override { return nodes_; }
  absl::Span<const int> ServersOf(int unit) const override { return unit_parts_[static_cast<size_t>(unit)].servers; }
  absl::StatusOr<absl::Span<const Tensor>> PartWeights(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int unit, int home) override;
  absl::Status EndPartGradients(int unit) override;
  absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* device, int64_t n) override;
  absl::Status Put(absl::Span<const int32_t> values, int32_t* device) override;

  Dependencies deps_;
  const ParameterLayout& layout_;
  GradientBuffers buffers_;
  std::unique_ptr<Gatherer> gatherer_;                    // null if this rank's group is itself
  std::unique_ptr<Reducer> reducer_;                      // null in a world of one
  std::vector<GradientSum> local_;                        // per unit: this rank's range
  std::vector<std::vector<Tensor>> weights_, gradients_;  // views, per unit, while it is open
  std::map<int64_t, double> chunk_sums_;                  // in a world of one
  ChunkSquares squares_;
  std::optional<ReductionPlan> plan_;
  MicrobatchRange range_;
  int wave_ = 0;
  std::stop_token stop_;
  std::vector<UnitParts> unit_parts_;              // by unit
  std::vector<int> group_, homes_;                 // this rank's group; members of it with a microbatch
  std::vector<int> nodes_;                         // by member, numbered as they come
  LocalExchange local_exchange_;                   // of a rank that is alone in its group
  std::unique_ptr<GroupExchange> group_exchange_;  // else
  double wait_seconds_ = 0;
};

}  // namespace holdfast
