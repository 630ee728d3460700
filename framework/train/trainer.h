#pragma once
// Exactly one step, in a world of any size: forward and backward over this rank's microbatches, the sums over all of
// them, and, once somebody decided that the step happened, the update. Prepare changes no weight, so a step can be
// abandoned and done again at any moment, here or in another world.
//
//   RETURN_IF_ERROR(trainer->EnterWorld(world, {}).status());
//   ASSIGN_OR_RETURN(StepResult result, trainer->Prepare(plan, next_microbatch, stop));
//   ...                                     // vote, commit
//   trainer->Commit(result);                // needs no communication, cannot fail

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/exchanged_bytes.h"
#include "framework/config/config.h"
#include "framework/nn/trained_part.h"
#include "framework/nn/unit_schedule.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/placed_state.h"
#include "framework/parallel/snapshot.h"
#include "framework/train/balance_updates.h"
#include "framework/train/held_states.h"
#include "framework/train/partly_frozen_store.h"
#include "framework/train/pass_runner.h"
#include "framework/train/read_only_weights.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// In the message of a step whose loss or gradient is no number, and of no other.
inline constexpr char kDiverged[] = " diverged: ";

/// The figure of a step of which not all rows count: how many do.
inline constexpr char kLearnedTokens[] = "learned_tokens";

struct TrainerOptions {
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel = {};
  int64_t total_steps = 0;  // of the schedule: the run may end before
  uint64_t seed = 0;
  size_t arena_bytes = 0;  // what one pass of the model needs (PlanTraining, PlanEvaluation)
  UnitSchedule training_schedule = {}, evaluation_schedule = {};  // from the same plans
  /// Where weights are sharded, units that are cut at parts are computed where they lie, in passes that need this.
  struct InParts {
    size_t arena_bytes = 0;
    UnitSchedule training_schedule, evaluation_schedule;
    // Of training passes. Not 0: where a rank has several microbatches in a step, two passes take turns.
    size_t second_arena_bytes = 0;
  };
  std::optional<InParts> in_parts = std::nullopt;
  /// Of the model's flat vector, each call within one parameter. Null: random, from seed; not null if some are frozen.
  ReadWeightsFn initial_weights = nullptr;
  bool begins_random = false;  // what is trained (adapters), whatever initial_weights has
  /// Called when a state is there: initial_weights may give up what it holds in memory until it is asked again.
  std::function<void()> free_initial_weights = nullptr;
  std::chrono::milliseconds transfer_timeout{60'000};
  int cpu_threads = 0;  // of what a device that is no CPU leaves to the processor; 0 = as many as there are
};

/// A world as one of its ranks sees it.
struct TrainerWorld {
  Placement placement{{"local"}, {}};
  int rank = 0;
  // Where the state lies: in the source world, whose ranks are these in this one (-1: gone). None: nowhere, everybody
  // initialises.
  std::optional<Placement> source;
  bool source_is_entered = false;  // the world entered last, though no step was committed in it
  std::vector<int> source_ranks;
  // Or in a checkpoint: writes every chunk that `state` holds (from several threads, if it likes). Without source only.
  std::function<absl::Status(ShardedState& state, std::stop_token stop)> load = nullptr;
  // Called by another thread when mirrors that were still to come are there. May be null.
  std::function<void()> on_mirrored = nullptr;
};

struct StepPlan {
  int64_t step = 0;                   // from 1
  std::vector<int64_t> microbatches;  // how many each rank computes; sums to batch.microbatches
};

struct StepResult {
  int64_t step = 0;
  float loss = 0;  // mean over the rows (tokens) of the global batch that count
  float grad_norm = 0;
  int64_t counted = 0;          // rows
  Statistics statistics;        // of the whole step: "loss", the sum of which `loss` is the mean, and the model's own
  std::vector<Figure> figures;  // what the model says of them
  double lr = 0;
  double compute_seconds = 0, wait_seconds = 0;  // of this rank; waiting is for other ranks
  double queue_seconds = 0;                      // of compute, until all passes were given to the device
  int64_t microbatches = 0;                      // computed here
  ExchangedBytes exchanged;                      // sent from here
};

/// Microbatch `index` of the step at hand.
using MicrobatchSource = absl::FunctionRef<absl::StatusOr<CpuBatch>(int64_t index)>;

/// Thread-safety: Abort and progress() from any thread, everything else from one.
class Trainer {
 public:
  /// `model` and `device` must outlive the trainer. It has no state until it enters a world.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(Model& model, Device& device, TrainerOptions options);

  /// Gives back all that this rank has of the world that it is in but the state, its communicators above all. To be
  /// called before those of `next` are made, where they must not be there together (NCCL); EnterWorld does it, too.
  void LeaveWorld(const TrainerWorld& next);

  /// Takes this rank's place in a world: initialises its part of the state, or fetches it from the members that hold
  /// it. What it held before stays until the first Commit, so that entering can fail and be tried again in yet another
  /// world with the same source. Returns the bytes received. In a world of one `communicators` may be empty. Aborted
  /// soon after `stop` is requested. With communicators.mirrors, this rank's mirrors are filled beside the step that is
  /// prepared first.
  absl::StatusOr<int64_t> EnterWorld(const TrainerWorld& world, WorldCommunicators communicators,
                                     std::stop_token stop = {});
  /// Of this rank's mirrors, that were still to come when EnterWorld returned.
  int64_t mirror_bytes_to_come() const { return states_.mirror_bytes_to_come(); }
  bool mirrored() const { return states_.mirrored(); }
  /// Waits until the mirrors are filled; to be called before Commit and before digests of copies are asked for.
  absl::Status AwaitMirrors() { return states_.AwaitMirrors(); }
  /// If it is under way: on_mirrored is not called any more. The world has to be left then.
  void EndMirrorFill() { states_.EndMirrorFill(); }
  /// Forgets all state: in the next world this rank is a newcomer.
  void Forget() { states_.Forget(); }
  /// Makes whatever is under way with other ranks fail soon. The world has to be left then.
  void Abort(const std::string& reason) { states_.Abort(reason); }

  /// Whether units that are cut at parts are computed where they lie in a world of this placement: it takes
  /// communicators.parts.
  bool InParts(const Placement& placement) const {
    return options_.in_parts.has_value() && placement.num_groups() < placement.size();
  }

  /// Whether there two of a rank's passes take turns: some rank has two microbatches then, whoever is given how many.
  bool TwoAtATime(const Placement& placement) const {
    return InParts(placement) && options_.in_parts->second_arena_bytes > 0 &&
           options_.batch.microbatches > placement.size();
  }

  /// The microbatches of a step that are computed here, in order.
  std::vector<int64_t> MicrobatchesHere(absl::Span<const int64_t> microbatches) const;

  /// Loss and gradient of a step; the same on all ranks. Cancelled soon after `stop` is requested; OutOfRange,
  /// naming loss and norm, if either is not finite.
  absl::StatusOr<StepResult> Prepare(const StepPlan& step, MicrobatchSource source, std::stop_token stop);

  /// Digests of the chunks this rank sums the gradients of, as they will be after Commit(result), by chunk.
  std::map<int, uint64_t> DigestsAfter(const StepResult& result);
  /// The same of chunks that others hold as well, for their holders to be compared: of those that this rank holds and
  /// does not sum (`all`), or of a sample of all that it holds, another one in each step.
  std::map<int, uint64_t> DigestsOfCopiesAfter(const StepResult& result, bool all);
  /// Whether steps are computed with this rank's copy of a chunk. Nobody reads its mirrors.
  bool Serves(int chunk) const { return current().map().Serves(current().rank(), chunk); }

  /// Applies the update of the step prepared last. The mirrors are there.
  void Commit(const StepResult& result);

  /// The state as it is now, of the chunks this rank answers for: those of all ranks are the whole. Reading it costs
  /// the steps that follow nothing but what `staging_bytes` cannot take. One at a time: a former one is abandoned, and
  /// so is this one if the state goes away (Forget; another world, unless a step was committed in this one).
  std::shared_ptr<Snapshot> StartSnapshot(size_t staging_bytes);

  /// Mean loss over microbatches 0 .. count - 1 of `source`, over the rows that count. Touches nothing of training. No
  /// rank begins a pass before all have ended the one before.
  absl::StatusOr<double> Evaluate(int64_t count, MicrobatchSource source, std::stop_token stop);

  /// Calls use(read) on rank 0, where read gives the weights of the whole model; every rank must call it.
  absl::Status WithWeights(absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use);

  /// Of the state: what the model's trained parameters and the optimizer make of it.
  const StateLayout& state_layout() const { return state_layout_; }
  /// This rank's part of the state, in the world it is in.
  ShardedState& state() { return current().state(); }
  StepProgress& progress() { return progress_; }

 private:
  Trainer(Model& model, Device& device, TrainerOptions options, std::unique_ptr<PassRunner> runner);
  absl::Status LoadFrozenWeights();
  absl::Status CreateCpuSide();
  /// What the model asks for weights.
  UnitStore& model_store(int lane = 0) {
    return frozen_store_ != nullptr ? *frozen_store_ : static_cast<UnitStore&>(current().store().lane(lane));
  }

  PlacedState& current() const { return states_.current(); }
  absl::Status FillState(const TrainerWorld& world, PlacedState& target, std::unique_ptr<Communicator> for_mirrors,
                         int64_t* bytes, std::stop_token stop);
  absl::Status FetchState(const TrainerWorld& world, PlacedState& target, std::unique_ptr<Communicator> for_mirrors,
                          int64_t* bytes);
  ReductionPlan PlanOf(absl::Span<const int64_t> microbatches) const;
  /// Queues this rank's passes, in the plan's order.
  absl::Status RunMicrobatches(const ReductionPlan& plan, MicrobatchSource source);
  absl::Status RunWave(const MicrobatchRange& range, int lane, MicrobatchSource source);
  /// A pass of other ranks.
  absl::Status ServeOthers(bool training, int lane = 0);
  absl::StatusOr<std::vector<Statistics>> CombineResults(const ReductionPlan& plan, std::vector<uint64_t> passes);
  std::map<int, uint64_t> DigestsAfter(const StepResult& result,
                                       absl::FunctionRef<bool(int chunk, bool summed_here)> wanted);
  /// Passes scale their gradients by 1 / (rows of the step): what makes that 1 / (those that count), known only when
  /// all ranks have told. 1 where all count, 0 where none does: nothing is learned then.
  double PerCounted(const StepResult& result) const;
  UpdateScalars ScalarsOf(const StepResult& result) const;
  UpdateArguments ArgumentsOf(const StepResult& result) const;

  Model& model_;
  Device& device_;
  TrainerOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainedPart trained_;
  StateLayout state_layout_;
  std::unique_ptr<PassRunner> runner_;
  std::optional<ReadOnlyWeights> frozen_;  // nothing: all is trained
  std::optional<BalanceUpdates> balance_updates_;
  absl::Span<const float* const> updates_;  // of the step prepared last, by chunk
  std::unique_ptr<Device> cpu_device_;      // none where device_ is a CPU
  std::unique_ptr<Stream> cpu_stream_;
  StepProgress progress_;
  std::unique_ptr<Stream> snapshot_stream_;  // of whoever reads it
  // Shared with whoever reads it, for as long as either of us needs it.
  std::shared_ptr<CpuBlocks> snapshot_memory_;
  HeldStates states_;                                // uses all of the above
  std::unique_ptr<PartlyFrozenStore> frozen_store_;  // over the store of the world; null where there is no frozen_
};

}  // namespace holdfast
