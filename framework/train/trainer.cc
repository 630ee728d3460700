#include "framework/train/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/optim/schedule.h"
#include "framework/parallel/staged_communicator.h"
#include "framework/parallel/statistics_sum.h"
#include "framework/parallel/transfer.h"
#include "framework/train/same_weights.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSquaresStatistic[] = "squares";

std::vector<uint64_t> BitsOf(const std::map<int64_t, double>& values) {
  std::vector<uint64_t> bits;
  for (const auto& [key, value] : values) bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

/// Chunks whose gradients `rank` sums, ascending.
std::vector<int> ChunksOf(const PlacedState& placed, int rank) {
  std::vector<int> chunks;
  for (int u = 0; u < placed.map().layout().num_units(); ++u) {
    for (const Range& range : placed.map().Summed(u, rank)) {
      for (int64_t c = range.begin; c < range.end; ++c) chunks.push_back(static_cast<int>(c));
    }
  }
  return chunks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Model& model, Device& device, TrainerOptions options) {
  const PassRunner::Options pass{
      .max_rows = options.batch.microbatch_tokens(), .max_passes = options.batch.microbatches, .seed = options.seed};
  ASSIGN_OR_RETURN(auto runner, PassRunner::Create(model, device, pass));
  std::unique_ptr<Trainer> trainer(new Trainer(model, device, std::move(options), std::move(runner)));
  ASSIGN_OR_RETURN(trainer->balance_updates_, BalanceUpdates::Create(trainer->trained_.layout(), device));
  RETURN_IF_ERROR(trainer->LoadFrozenWeights());
  ASSIGN_OR_RETURN(trainer->snapshot_stream_, device.CreateStream(StreamKind::kTransfer));
  if (!device.is_cpu()) RETURN_IF_ERROR(trainer->CreateCpuSide());
  return trainer;
}

absl::Status Trainer::LoadFrozenWeights() {
  if (trained_.is_all()) return absl::OkStatus();
  HOLDFAST_CHECK(options_.initial_weights != nullptr);
  for (UnitSchedule* schedule : {&options_.training_schedule, &options_.evaluation_schedule}) {
    *schedule = trained_.Of(*schedule);
  }
  if (options_.in_parts.has_value()) {
    for (UnitSchedule* schedule : {&options_.in_parts->training_schedule, &options_.in_parts->evaluation_schedule}) {
      *schedule = trained_.Of(*schedule);
    }
  }
  ASSIGN_OR_RETURN(frozen_, ReadOnlyWeights::Load(trained_.model(), ReadOnlyWeights::Frozen, model_.compute_dtype(),
                                                  device_, runner_->stream(), options_.initial_weights));
  return absl::OkStatus();
}

absl::Status Trainer::CreateCpuSide() {
  cpu_device_ = MakeCpuDevice(options_.cpu_threads);
  ASSIGN_OR_RETURN(cpu_stream_, cpu_device_->CreateStream());
  return absl::OkStatus();
}

Trainer::Trainer(Model& model, Device& device, TrainerOptions options, std::unique_ptr<PassRunner> runner)
    : model_(model),
      device_(device),
      options_(std::move(options)),
      optimizer_(MakeOptimizer(options_.optimizer)),
      trained_(model.layout()),
      state_layout_(LayoutOf(*optimizer_, trained_.layout())),
      runner_(std::move(runner)),
      snapshot_memory_(CpuBlocks::Create(device, state_layout_.LargestChunkBytes())) {}

void Trainer::LeaveWorld(const TrainerWorld& next) {
  states_.Leave(!next.source.has_value() ? HeldStates::NextSource::kNone
                : next.source_is_entered ? HeldStates::NextSource::kEntered
                                         : HeldStates::NextSource::kLastCommitted);
}

absl::StatusOr<int64_t> Trainer::EnterWorld(const TrainerWorld& world, WorldCommunicators communicators,
                                            std::stop_token stop) {
  LeaveWorld(world);
  const bool in_parts = InParts(world.placement);
  const bool two_at_a_time = TwoAtATime(world.placement);
  HOLDFAST_CHECK(!two_at_a_time || !frozen_.has_value());  // each has a store of its own
  RETURN_IF_ERROR(runner_->SetArenas(in_parts ? options_.in_parts->arena_bytes : options_.arena_bytes,
                                     two_at_a_time ? options_.in_parts->second_arena_bytes : 0));
  communicators.world = ServeDevice(std::move(communicators.world), device_);
  communicators.group = ServeDevice(std::move(communicators.group), device_);
  communicators.parts = ServeDevice(std::move(communicators.parts), device_);
  std::unique_ptr<Communicator> for_mirrors = ServeDevice(std::move(communicators.mirrors), device_);
  const PlacedState::Options options{.placement = world.placement,
                                     .rank = world.rank,
                                     .parallel = options_.parallel,
                                     .order = SumOrder::Of(options_.batch),
                                     .in_parts = in_parts,
                                     .two_at_a_time = two_at_a_time,
                                     .timeout = options_.transfer_timeout,
                                     .cpu = {cpu_device_.get(), cpu_stream_.get()},
                                     .optimizer = optimizer_.get()};
  ASSIGN_OR_RETURN(std::unique_ptr<PlacedState> placed,
                   PlacedState::Create(state_layout_, model_.compute_dtype(), options, std::move(communicators),
                                       device_, runner_->stream(), progress_));
  states_.Enter(std::move(placed));
  if (frozen_.has_value()) {
    frozen_store_ = std::make_unique<PartlyFrozenStore>(trained_, frozen_->tensors(), current().store().lane());
  }
  const std::stop_callback on_stop(stop, [this] { Abort("the world has changed"); });
  int64_t bytes = 0;
  RETURN_IF_ERROR(FillState(world, current(), std::move(for_mirrors), &bytes, std::move(stop)));
  RETURN_IF_ERROR(runner_->stream().Synchronize());
  if (options_.free_initial_weights != nullptr) options_.free_initial_weights();
  states_.StartMirrorFill();
  return bytes;
}

absl::Status Trainer::FillState(const TrainerWorld& world, PlacedState& target,
                                std::unique_ptr<Communicator> for_mirrors, int64_t* bytes, std::stop_token stop) {
  if (world.load != nullptr) {
    HOLDFAST_CHECK(!world.source.has_value());
    RETURN_IF_ERROR(world.load(target.state(), std::move(stop)));
    target.state().RefreshComputeWeights();
    return absl::OkStatus();
  }
  if (!world.source.has_value()) {
    if (options_.initial_weights == nullptr || options_.begins_random) {
      target.state().Initialize(options_.seed);
      return absl::OkStatus();
    }
    // Of a model of which a part is frozen, train.init_digest says which it is.
    if (trained_.is_all() && target.world() != nullptr) {
      RETURN_IF_ERROR(
          CheckSameWeights(trained_.model(), options_.initial_weights, *target.world(), options_.transfer_timeout));
    }
    return target.state().SetWeights([&](int64_t first, absl::Span<float> out) {
      return options_.initial_weights(trained_.OffsetInModel(first), out);
    });
  }
  return FetchState(world, target, std::move(for_mirrors), bytes);
}

absl::Status Trainer::FetchState(const TrainerWorld& world, PlacedState& target,
                                 std::unique_ptr<Communicator> for_mirrors, int64_t* bytes) {
  const ShardMap map(trained_.layout(), model_.compute_dtype(), *world.source);
  const bool was_there =
      std::find(world.source_ranks.begin(), world.source_ranks.end(), world.rank) != world.source_ranks.end();
  HOLDFAST_CHECK(!was_there || states_.source() != nullptr);
  TransfersByUse transfers = SplitByUse(PlanTransfer(map, world.source_ranks, target.map()), target.map());
  const TransferArguments arguments{.old_state = was_there ? states_.source() : nullptr,
                                    .new_state = &target.state(),
                                    .world = target.world(),
                                    .timeout = options_.transfer_timeout};
  ASSIGN_OR_RETURN(*bytes, TransferServed(arguments, transfers.served));
  if (for_mirrors == nullptr) {
    ASSIGN_OR_RETURN(const int64_t mirrored, TransferMirrors(arguments, transfers.mirrored, progress_));
    *bytes += mirrored;
    return absl::OkStatus();
  }
  const auto done = [placed = &target, on_mirrored = world.on_mirrored](const absl::Status& status) {
    if (!status.ok()) {
      placed->store().Abort(std::string(status.message()));  // the step must not wait for what will not come
    } else if (on_mirrored != nullptr) {
      on_mirrored();
    }
  };
  states_.FillMirrors(std::make_unique<MirrorFill>(MirrorFill::Dependencies{.transfers = std::move(transfers.mirrored),
                                                                            .old_state = arguments.old_state,
                                                                            .target = &target,
                                                                            .timeout = options_.transfer_timeout,
                                                                            .communicator = std::move(for_mirrors),
                                                                            .progress = &progress_,
                                                                            .done = done}));
  return absl::OkStatus();
}

std::shared_ptr<Snapshot> Trainer::StartSnapshot(size_t staging_bytes) {
  return states_.StartSnapshot({.state = &current().state(),
                                .reading = snapshot_stream_.get(),
                                .updating = &runner_->stream(),
                                .memory = snapshot_memory_},
                               ChunksOf(current(), current().rank()), staging_bytes);
}

std::vector<int64_t> Trainer::MicrobatchesHere(absl::Span<const int64_t> microbatches) const {
  return PlanOf(microbatches).MicrobatchesOf(current().rank());
}

ReductionPlan Trainer::PlanOf(absl::Span<const int64_t> microbatches) const {
  return {microbatches, ShardedStore::Mode(current().placement()), SumOrder::Of(options_.batch)};
}

absl::Status Trainer::RunMicrobatches(const ReductionPlan& plan, MicrobatchSource source) {
  ShardedStore& store = current().store();
  runner_->BeginStep();
  for (int wave = 0, together = 0; wave < plan.num_waves(); wave += together) {
    together = store.BeginWaves(wave);
    const auto run = [&](int lane) { return RunWave(plan.RangeOf(wave + lane, current().rank()), lane, source); };
    RETURN_IF_ERROR(together > 1 ? store.turns().Run([&] { return run(0); }, [&] { return run(1); }) : run(0));
  }
  return absl::OkStatus();
}

absl::Status Trainer::RunWave(const MicrobatchRange& range, int lane, MicrobatchSource source) {
  const float scale = 1.0f / static_cast<float>(options_.batch.step_tokens());
  WaveStore& store = current().store().lane(lane);
  for (int64_t i = range.first; i < range.end(); ++i) {
    ASSIGN_OR_RETURN(const CpuBatch microbatch, source(i));
    RETURN_IF_ERROR(runner_->ForwardBackward(microbatch, scale, model_store(lane), store.parts(), lane));
  }
  return range.count == 0 && store.serves_others() ? ServeOthers(/*training=*/true, lane) : absl::OkStatus();
}

absl::Status Trainer::ServeOthers(bool training, int lane) {
  return runner_->Serve(options_.batch.microbatch_size, options_.batch.sequence_length,
                        *current().store().lane(lane).parts(), training, lane);
}

// Of the microbatches and, in the same exchange, of the chunks' gradients.
absl::StatusOr<std::vector<Statistics>> Trainer::CombineResults(const ReductionPlan& plan,
                                                                std::vector<uint64_t> passes) {
  static const StatisticsLayout of_chunks{{{.name = kSquaresStatistic, .combine = Combine::kInOrder}}};
  ItemStatistics microbatches{.layout = &runner_->statistics(), .items = {}, .values = std::move(passes)};
  ItemStatistics chunks{.layout = &of_chunks, .items = {}, .values = BitsOf(current().store().chunk_sums())};
  for (int r = 0; r < plan.size(); ++r) {
    microbatches.items.push_back(plan.MicrobatchesOf(r));
    const std::vector<int> summed = ChunksOf(current(), r);
    chunks.items.emplace_back(summed.begin(), summed.end());
  }
  return CombineStatistics({microbatches, chunks}, current().world(), options_.transfer_timeout);
}

absl::StatusOr<StepResult> Trainer::Prepare(const StepPlan& step, MicrobatchSource source, std::stop_token stop) {
  HOLDFAST_CHECK(step.step > 0);
  const Clock::time_point start = Clock::now();
  ShardedStore& store = current().store();
  const ReductionPlan plan = PlanOf(step.microbatches);
  RETURN_IF_ERROR(store.BeginStep(
      plan, store.lane().parts() == nullptr ? options_.training_schedule : options_.in_parts->training_schedule, stop));
  RETURN_IF_ERROR(RunMicrobatches(plan, source));
  const double queue_seconds = SecondsSince(start) - store.wait_seconds();
  ASSIGN_OR_RETURN(std::vector<uint64_t> passes, runner_->TakeStatistics());
  const double compute_seconds = SecondsSince(start) - store.wait_seconds();
  RETURN_IF_ERROR(store.EndStep());
  RETURN_IF_ERROR(runner_->stream().Synchronize());

  ASSIGN_OR_RETURN(std::vector<Statistics> combined, CombineResults(plan, std::move(passes)));
  const double square_sum = combined[1].Reals(kSquaresStatistic)[0];

  StepResult result;
  result.step = step.step;
  result.statistics = std::move(combined[0]);
  result.figures = model_.Figures(result.statistics);
  result.counted = result.statistics.Counts(kCountedStatistic)[0];
  if (result.counted != options_.batch.step_tokens()) {
    result.figures.push_back({.name = kLearnedTokens, .values = {static_cast<double>(result.counted)}});
  }
  result.loss = static_cast<float>(result.statistics.Reals(kLossStatistic)[0] /
                                   static_cast<double>(std::max<int64_t>(result.counted, 1)));
  result.grad_norm = static_cast<float>(std::sqrt(square_sum) * PerCounted(result));
  result.lr = LearningRate(options_.optimizer, options_.schedule, step.step, options_.total_steps);
  result.compute_seconds = compute_seconds;
  result.queue_seconds = queue_seconds;
  result.wait_seconds = store.wait_seconds();
  result.exchanged = store.exchanged_bytes();
  result.microbatches = static_cast<int64_t>(plan.MicrobatchesOf(current().rank()).size());
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    return absl::OutOfRangeError(absl::StrCat("step ", step.step, kDiverged, "loss ", result.loss, ", gradient norm ",
                                              result.grad_norm,
                                              "; lower optimizer.lr, raise schedule.warmup_steps or check the data"));
  }
  RETURN_IF_ERROR(current().whole_updates().Prepare(store.Gradients(), ScalarsOf(result), stop));
  updates_ = balance_updates_->With(result.statistics, current().whole_updates().updates());
  return result;
}

double Trainer::PerCounted(const StepResult& result) const {
  if (result.counted == 0) return 0;
  return static_cast<double>(options_.batch.step_tokens()) / static_cast<double>(result.counted);
}

UpdateScalars Trainer::ScalarsOf(const StepResult& result) const {
  UpdateScalars scalars = ComputeUpdateScalars(options_.optimizer, result.lr, result.step, result.grad_norm);
  scalars.grad_scale *= static_cast<float>(PerCounted(result));
  return scalars;
}

UpdateArguments Trainer::ArgumentsOf(const StepResult& result) const {
  return {.optimizer = optimizer_.get(), .scalars = ScalarsOf(result), .updates = updates_};
}

std::map<int, uint64_t> Trainer::DigestsAfter(const StepResult& result) {
  return DigestsAfter(result, [](int, bool summed_here) { return summed_here; });
}

std::map<int, uint64_t> Trainer::DigestsOfCopiesAfter(const StepResult& result, bool all) {
  constexpr int64_t kSampleEvery = 256;  // steps until every chunk was compared: 1/256 of the state is read in each
  if (current().placement().Holders(0).size() == 1) return {};
  if (all) return DigestsAfter(result, [](int, bool summed_here) { return !summed_here; });
  const auto chunks = std::ssize(current().map().layout().chunks());
  return DigestsAfter(result, [&](int chunk, bool) {  // neighbours, which are digested together
    return chunk * kSampleEvery / chunks == result.step % kSampleEvery;
  });
}

std::map<int, uint64_t> Trainer::DigestsAfter(const StepResult& result,
                                              absl::FunctionRef<bool(int chunk, bool summed_here)> wanted) {
  const ShardMap& map = current().map();
  std::vector<ChunkGradient> chunks;
  for (const GradientPiece& piece : current().store().Gradients()) {
    for (auto c = static_cast<int>(piece.chunks.begin); c < piece.chunks.end; ++c) {
      if (!wanted(c, piece.primary == current().rank())) continue;
      chunks.push_back({c, piece.gradient + map.Elements(piece.unit, {piece.chunks.begin, c}).size()});
    }
  }
  return current().state().DigestsAfter(chunks, ArgumentsOf(result));
}

void Trainer::Commit(const StepResult& result) {
  HOLDFAST_CHECK(mirrored());
  const UpdateArguments arguments = ArgumentsOf(result);
  Snapshot* const snapshot = states_.snapshot_of_current();
  for (const GradientPiece& piece : current().store().Gradients()) {
    if (snapshot != nullptr) snapshot->BeforeUpdate(piece.unit, piece.elements);
    current().state().Update(piece.chunks, piece.gradient, arguments);
  }
  const absl::Status updated = runner_->stream().Synchronize();
  if (!updated.ok()) LogError("the update of step ", result.step, " failed: ", updated.message());
  HOLDFAST_CHECK(updated.ok());  // half an update is nothing to go on with: the process ends, its state is with others
  ++progress_.count;
  states_.Commit();
}

absl::StatusOr<double> Trainer::Evaluate(int64_t count, MicrobatchSource source, std::stop_token stop) {
  ShardedStore& store = current().store();
  WaveStore& pass = store.lane();
  const int size = current().placement().size(), rank = current().rank();
  RETURN_IF_ERROR(store.BeginEvaluation(
      (count + size - 1) / size,
      pass.parts() == nullptr ? options_.evaluation_schedule : options_.in_parts->evaluation_schedule, stop));
  static const StatisticsLayout layout{{{.name = kLossStatistic, .combine = Combine::kInOrder},
                                        {.name = kCountedStatistic, .combine = Combine::kCount}}};
  ItemStatistics microbatches{.layout = &layout, .items = {}, .values = {}};
  microbatches.items.resize(static_cast<size_t>(size));
  for (int64_t i = 0; i < count; ++i) microbatches.items[static_cast<size_t>(i % size)].push_back(i);
  for (int64_t first = 0; first < count; first += size) {
    // Where a pass needs nobody's weights ranks would get further apart with each, and who is slow would not be there
    // when the others have waited for its losses for as long as they do.
    if (first > 0 && size > 1) RETURN_IF_ERROR(current().world()->Barrier(Clock::now() + options_.transfer_timeout));
    std::vector<bool> has_microbatch;
    for (int r = 0; r < size; ++r) has_microbatch.push_back(first + r < count);
    pass.BeginEvaluationPass(has_microbatch);
    if (first + rank >= count) {
      if (pass.serves_others()) RETURN_IF_ERROR(ServeOthers(/*training=*/false));
      continue;
    }
    ASSIGN_OR_RETURN(const CpuBatch microbatch, source(first + rank));
    ASSIGN_OR_RETURN(const LossSum loss, runner_->Evaluate(microbatch, model_store(), pass.parts()));
    microbatches.values.push_back(std::bit_cast<uint64_t>(loss.sum));
    microbatches.values.push_back(std::bit_cast<uint64_t>(loss.counted));
  }
  ASSIGN_OR_RETURN(const std::vector<Statistics> combined,
                   CombineStatistics({microbatches}, current().world(), options_.transfer_timeout));
  const int64_t counted = combined[0].Counts(kCountedStatistic)[0];
  if (counted == 0) {
    return absl::FailedPreconditionError(
        "validation has read nothing that is learned: data.validation has no whole sample, or only masked tokens in "
        "its first train.validation_microbatches");
  }
  return combined[0].Reals(kLossStatistic)[0] / static_cast<double>(counted);
}

absl::Status Trainer::WithWeights(absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use) {
  if (trained_.is_all()) return holdfast::WithWeights(current(), options_.transfer_timeout, progress_, use);
  return holdfast::WithWeights(current(), options_.transfer_timeout, progress_, [&](const ReadWeightsFn& read) {
    return use([&](int64_t first, absl::Span<float> out) {
      return trained_.Read(first, out, read, options_.initial_weights);
    });
  });
}

}  // namespace holdfast
