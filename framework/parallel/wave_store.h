#pragma once
// What the passes of one wave, or of an evaluation, ask for weights and give gradients to: the UnitStore of training,
// and where units that are cut at parts are computed where they lie, the PartStore. Of a rank's two passes at a time
// each has one of its own; what they share is the ShardedStore's.

#include <optional>
#include <stop_token>
#include <vector>

#include "framework/nn/model.h"
#include "framework/parallel/gatherer.h"
#include "framework/parallel/gradient_sum.h"
#include "framework/parallel/pass_turns.h"
#include "framework/parallel/reducer.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

/// Thread-safety: none.
class WaveStore final : public UnitStore, private PartStore {
 public:
  /// Of a unit that is computed in parts.
  struct UnitParts {
    std::vector<int> servers;     // by part: the member
    std::vector<int> parameters;  // of the parts served here
    std::vector<Tensor> weights;  // of each
    int64_t elements = 0;         // of them all
  };
  /// The step, or the evaluation, at hand.
  struct Step {
    std::optional<ReductionPlan> plan;
    std::stop_token stop;
    double wait_seconds = 0;  // for other ranks, since it began
  };
  /// All but the lane is the same for both. Gatherer and reducer may be null.
  struct Dependencies {
    int lane = 0, rank = 0;
    SumOrder order = SumOrder::Tree();
    ShardedState* state = nullptr;
    Device* device = nullptr;
    Stream* stream = nullptr;
    StepProgress* progress = nullptr;
    GradientBuffers* buffers = nullptr;
    Gatherer* gatherer = nullptr;
    Reducer* reducer = nullptr;
    Exchange* exchange = nullptr;                        // null: units are acquired whole
    const std::vector<int>* group = nullptr;             // this rank's
    const std::vector<int>* nodes = nullptr;             // of its members
    const std::vector<UnitParts>* unit_parts = nullptr;  // by unit
    PassTurns* turns = nullptr;                          // of two passes at a time; null: there never are
    Step* step = nullptr;
  };

  /// Everything in `dependencies` must outlive it.
  explicit WaveStore(const Dependencies& dependencies);

  void BeginStep();
  /// `with_another`: the passes of this wave and of the other lane's take turns.
  void BeginWave(int wave, bool with_another);
  /// A pass without gradients, of which the ranks of the world with has_microbatch[rank] have a microbatch.
  void BeginEvaluationPass(const std::vector<bool>& has_microbatch);

  /// Null: units are acquired whole. Where it is not, a rank without a microbatch serves (Model::Serve) if
  /// serves_others().
  PartStore* parts() { return in_parts() ? this : nullptr; }
  bool serves_others() const { return in_parts() && !homes_.empty(); }
  /// Of a unit, over the microbatches of this rank's range.
  GradientSum& sum(int unit) { return sums_[static_cast<size_t>(unit)]; }

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override;
  absl::Status EndGradients(int unit) override;

 private:
  /// Of a unit that is computed in parts, while they are open.
  struct PartGradientsOfUnit {
    std::vector<Tensor> tensors;
    std::vector<GradientSum::Piece> finished;  // of homes, as they come
  };

  bool in_parts() const { return deps_.exchange != nullptr; }
  void SkipPass() const;
  absl::Status WaitForRoom(int unit) const;
  template <typename HasMicrobatch>
  void FindHomes(HasMicrobatch&& has_microbatch);
  const UnitParts& PartsOf(int unit) const { return (*deps_.unit_parts)[static_cast<size_t>(unit)]; }

  Exchange& exchange() override { return *deps_.exchange; }
  absl::Span<const int> homes() const override { return homes_; }
  absl::Span<const int> nodes() const override { return *deps_.nodes; }
  absl::Span<const int> ServersOf(int unit) const override { return PartsOf(unit).servers; }
  absl::StatusOr<absl::Span<const Tensor>> PartWeights(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int unit, int home) override;
  absl::Status EndPartGradients(int unit) override;
  absl::Status Pause() override;
  absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* device, int64_t n) override;
  absl::Status Put(absl::Span<const int32_t> values, int32_t* device) override;

  Dependencies deps_;
  const ParameterLayout& layout_;
  std::vector<GradientSum> sums_;                         // per unit: this rank's range
  std::vector<std::vector<Tensor>> weights_, gradients_;  // views, per unit, while it is open
  std::vector<PartGradientsOfUnit> part_gradients_;       // by unit
  MicrobatchRange range_;
  int wave_ = 0;
  bool with_another_ = false;
  std::vector<int> homes_;  // members of the group with a microbatch
};

}  // namespace holdfast
