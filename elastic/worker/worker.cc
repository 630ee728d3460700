#include "elastic/worker/worker.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/control/state_source.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

TrainerWorld ViewOf(const WorldMessage& message, Placement placement, const ParallelConfig& parallel, int rank) {
  TrainerWorld view;
  view.placement = std::move(placement);
  view.rank = rank;
  if (message.source.generation == 0) return view;
  view.source = PlacementOf(message.source, parallel);
  for (const Member& member : message.source.members) view.source_ranks.push_back(message.world.RankOf(member.id));
  return view;
}

// The first moment is read by no forward pass: only the comparison of copies can see it. Weights come first.
void Flip(ShardedState& state, int rank, BitFlip::Where where) {
  const ParameterLayout& layout = state.map().layout();
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
    if (!state.Holds(c) || (state.map().PrimaryOf(c) == rank) == (where == BitFlip::Where::kMirror)) continue;
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    std::vector<std::byte> bytes(state.layout().ChunkBytes(chunk));
    state.ReadChunk(c, bytes.data());
    if (where == BitFlip::Where::kWeights) {
      for (int64_t i = 0; i < chunk.elements; ++i) bytes[static_cast<size_t>(4 * i + 2)] ^= std::byte{0x40};
    } else {
      bytes[bytes.size() / 2] ^= std::byte{4};
    }
    state.WriteChunk(c, bytes.data());
    return;
  }
}

/// No host could do better: the numbers are not finite, the data do not suffice. A full disk, memory or handles that
/// are used up, files that cannot be read: another host may, or this one later.
bool IsFatal(const absl::Status& status) { return absl::IsOutOfRange(status) || absl::IsFailedPrecondition(status); }

/// Of token files, which nothing but a step or a validation reads; a connection's damage names a rank.
bool IsBadData(const absl::Status& status, Phase phase) {
  const bool reads = phase == Phase::kData || phase == Phase::kForwardBackward || phase == Phase::kValidation;
  return reads && absl::IsDataLoss(status) && BlamedRanks(status).empty();
}

}  // namespace

Worker::Worker(const WorkerDependencies& dependencies)
    : deps_(dependencies),
      flip_(dependencies.flip),
      order_(dependencies.training->num_samples(), dependencies.config->run.seed, dependencies.config->data.shuffle) {}

template <typename Result, typename MakeEvent>
void Worker::Answer(const Result& result, const std::stop_token& stop, int64_t step, uint64_t generation,
                    MakeEvent&& make_event) {
  absl::Status status;
  if constexpr (std::is_same_v<Result, absl::Status>) {
    status = result;
  } else {
    status = result.status();
  }
  if (status.ok()) return deps_.shell->Answer(make_event());
  if (deps_.on_peer_failure != nullptr && !IsFatal(status)) deps_.on_peer_failure(status, stop);
  deps_.trainer->Abort(std::string(status.message()));  // the others must not wait for what will not come
  deps_.shell->Answer(TaskFailed{FailureMessage{.generation = generation,
                                                .step = step,
                                                .phase = deps_.shell->phase(),
                                                .cause = std::string(status.message()),
                                                .suspects = BlamedRanks(status),
                                                .fatal = !bad_checkpoint_ && IsFatal(status),
                                                .bad_checkpoint = bad_checkpoint_,
                                                .secondhand = absl::IsAborted(status),
                                                .out_of_memory = IsOutOfMemory(status),
                                                .no_room = IsOutOfRoom(status),
                                                .bad_data = IsBadData(status, deps_.shell->phase())}});
}

Worker::Exit Worker::Run() {
  while (true) {
    SessionShell::Next next = deps_.shell->NextTask();
    // Communication under way ends at once when the world has changed; the rest looks at the token.
    const std::stop_callback on_stop(next.stop, [this] { deps_.trainer->Abort("the world has changed"); });
    if (const auto* recover = std::get_if<RecoverTask>(&next.task)) {
      const auto recovered = Recover(*recover, next);
      Answer(recovered, next.stop, recover->world.committed_step + 1, recover->world.world.generation,
             [&] { return RecoverDone{*recovered}; });
    } else if (const auto* step = std::get_if<StepTask>(&next.task)) {
      const auto vote = Prepare(*step, next.stop);
      Answer(vote, next.stop, step->step, step->generation, [&] { return StepPrepared{*vote}; });
    } else if (const auto* update = std::get_if<UpdateTask>(&next.task)) {
      Update(*update);
    } else if (const auto* ending = std::get_if<EndingTask>(&next.task)) {
      const absl::Status ended = End(*ending, next.stop);
      Answer(ended, next.stop, ending->step, ending->generation, [&] { return EndingDone{ending->generation}; });
    } else if (std::holds_alternative<ForgetTask>(next.task)) {
      deps_.trainer->Forget();
    } else {
      const auto& exit = std::get<ExitTask>(next.task);
      deps_.trainer->EndMirrorFill();  // it tells the shell, which may go before the trainer
      return {exit.exit_code, exit.reason, exit.refused};
    }
  }
}

absl::StatusOr<WorldCommunicators> Worker::Connect(const WorldMessage& message, const Placement& placement,
                                                   const std::stop_token& stop) {
  WorldCommunicators result;
  const int size = message.world.size();
  const auto deadline = Clock::now() + std::chrono::milliseconds(deps_.config->elastic.collective_timeout_ms);
  if (size == 1) {
    if (deps_.connects_alone) RETURN_IF_ERROR(deps_.connect(message.world, rank_, {}, stop, deadline).status());
    return result;
  }
  std::vector<int> everybody(static_cast<size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  // Of each kind, the communicator that this rank gets. All ranks list all groups, in the same order.
  std::vector<std::vector<int>> groups;
  std::vector<std::unique_ptr<Communicator>*> kinds;
  const auto add = [&](const std::vector<int>& members, std::unique_ptr<Communicator>* mine) {
    groups.push_back(members);
    kinds.push_back(mine);
  };
  const auto add_groups = [&](std::unique_ptr<Communicator>* mine) {
    for (int g = 0; g < placement.num_groups(); ++g) {
      if (placement.Group(g).size() > 1) add(placement.Group(g), mine);
    }
  };
  add(everybody, &result.world);
  add_groups(&result.group);
  if (deps_.trainer->InParts(placement)) add_groups(&result.parts);
  // NCCL promises little of communicators that work at the same time: there mirrors are filled before the step.
  const bool fills_mirrors = message.source.generation != 0 && placement.num_mirrors() > 0 &&
                             deps_.config->parallel.transport != Transport::kNccl;
  if (fills_mirrors) add(everybody, &result.mirrors);
  ASSIGN_OR_RETURN(auto communicators, deps_.connect(message.world, rank_, groups, stop, deadline));
  for (size_t i = 0; i < communicators.size(); ++i) {
    if (communicators[i] != nullptr) *kinds[i] = std::move(communicators[i]);
  }
  if (deps_.wrap_parts != nullptr) result.parts = deps_.wrap_parts(std::move(result.parts));
  return result;
}

absl::StatusOr<RecoveredMessage> Worker::Recover(const RecoverTask& task, const SessionShell::Next& next) {
  const WorldMessage& message = task.world;
  const Clock::time_point start = Clock::now();
  deps_.shell->SetPhase(Phase::kRendezvous, message.committed_step + 1);
  rank_ = task.rank;
  world_size_ = message.world.size();
  bad_checkpoint_ = false;
  loader_.reset();
  TrainerWorld view =
      ViewOf(message, PlacementOf(message.world, deps_.config->parallel), deps_.config->parallel, rank_);
  const uint64_t entered = std::exchange(entered_, 0);  // here, for tasks before this one may have been dropped
  view.source_is_entered = entered != 0 && entered == message.source.generation;
  deps_.trainer->LeaveWorld(view);
  ASSIGN_OR_RETURN(WorldCommunicators communicators, Connect(message, view.placement, next.stop));
  RecoveredMessage report{.generation = message.world.generation};
  report.abort_seconds = next.abort_seconds;
  report.rendezvous_seconds = SecondsSince(start);
  deps_.shell->SetPhase(Phase::kTransfer, message.committed_step + 1);
  if (!message.checkpoint.empty()) {
    view.load = [&](ShardedState& state, const std::stop_token& stop) { return Load(message.checkpoint, state, stop); };
  }
  const uint64_t generation = message.world.generation;
  view.on_mirrored = [shell = deps_.shell, generation] { shell->MirrorsFilled(generation); };
  ASSIGN_OR_RETURN(report.bytes_received, deps_.trainer->EnterWorld(view, std::move(communicators), next.stop));
  report.mirror_bytes = deps_.trainer->mirror_bytes_to_come();
  entered_ = message.world.generation;
  report.transfer_seconds = SecondsSince(start) - report.rendezvous_seconds;
  deps_.shell->SetPhase(Phase::kIdle, message.committed_step + 1);
  return report;
}

absl::Status Worker::Load(const std::string& name, ShardedState& state, const std::stop_token& stop) {
  if (deps_.checkpointer == nullptr) return absl::FailedPreconditionError("this worker has no checkpoint storage");
  absl::Status status = deps_.checkpointer->Load(name, state, stop);
  // Damaged, or gone, or of another model: an older one may do. A storage that cannot be reached says nothing about it.
  bad_checkpoint_ = absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return status;
}

void Worker::PointLoaderAt(const StepTask& task) {
  if (loader_.has_value() && loader_plan_.step == task.step && loader_plan_.microbatches == task.microbatches) return;
  const std::vector<int64_t> indices = deps_.trainer->MicrobatchesHere(task.microbatches);
  loader_.reset();
  loader_plan_ = {task.step, task.microbatches};
  if (indices.empty()) return;
  const BatchConfig& batch = deps_.config->batch;
  loader_.emplace(*deps_.training, order_,
                  Loader::Options{.shape = {batch.microbatches, batch.microbatch_size},
                                  .first_step = task.step,
                                  .indices = indices,
                                  .threads = static_cast<int>(deps_.config->data.loader_threads)});
}

bool Worker::IsDigestStep(int64_t step) const {
  const TrainConfig& train = deps_.config->train;
  const auto is_nth = [step](int64_t every) { return every > 0 && step % every == 0; };
  const bool may_be_last = step == train.steps || (train.early_stop_patience > 0 && is_nth(train.validate_every_steps));
  return may_be_last || is_nth(deps_.config->log.digest_every_steps);
}

absl::StatusOr<VoteMessage> Worker::Prepare(const StepTask& task, const std::stop_token& stop) {
  const int64_t every = deps_.config->train.validate_every_steps;
  if (every > 0 && task.step > 1 && (task.step - 1) % every == 0) {
    RETURN_IF_ERROR(Validate(task.generation, task.step - 1, stop));
  }
  deps_.shell->SetPhase(Phase::kData, task.step);
  PointLoaderAt(task);
  deps_.shell->SetPhase(Phase::kForwardBackward, task.step);
  const auto source = [&](int64_t index) {
    if (deps_.slowdown.count() > 0) std::this_thread::sleep_for(deps_.slowdown);
    return loader_->Next(task.step, index, stop);
  };
  ASSIGN_OR_RETURN(prepared_, deps_.trainer->Prepare({task.step, task.microbatches}, source, stop));
  loader_plan_.step = task.step + 1;
  RETURN_IF_ERROR(AwaitMirrors(task.step));
  VoteMessage vote{.generation = task.generation, .step = task.step, .digests = {}};
  vote.loss_bits = std::bit_cast<uint32_t>(prepared_.loss);
  vote.grad_norm_bits = std::bit_cast<uint32_t>(prepared_.grad_norm);
  vote.statistics_digest = prepared_.statistics.Digest();
  if (rank_ == 0) vote.figures = prepared_.figures;
  vote.lr = prepared_.lr;
  vote.compute_seconds = prepared_.compute_seconds;
  vote.wait_seconds = prepared_.wait_seconds;
  if (deps_.checkpointer != nullptr) vote.stall_seconds = deps_.checkpointer->TakeStallSeconds();
  vote.microbatches = prepared_.microbatches;
  vote.exchanged = prepared_.exchanged;
  if (IsDigestStep(task.step)) {
    for (const auto& [chunk, digest] : deps_.trainer->DigestsAfter(prepared_)) vote.digests.push_back({chunk, digest});
  }
  for (const auto& [chunk, digest] : deps_.trainer->DigestsOfCopiesAfter(prepared_, IsDigestStep(task.step))) {
    (deps_.trainer->Serves(chunk) ? vote.copies : vote.mirrors).push_back({chunk, digest});
  }
  deps_.shell->SetPhase(Phase::kVote, task.step);
  return vote;
}

absl::Status Worker::AwaitMirrors(int64_t step) const {
  if (deps_.trainer->mirrored()) return absl::OkStatus();
  deps_.shell->SetPhase(Phase::kTransfer, step);
  return deps_.trainer->AwaitMirrors();
}

absl::Status Worker::Validate(uint64_t generation, int64_t step, const std::stop_token& stop) const {
  if (deps_.validation == nullptr) return absl::OkStatus();
  deps_.shell->SetPhase(Phase::kValidation, step);
  const int64_t size = deps_.config->batch.microbatch_size;
  const int64_t count = NumValidationMicrobatches(*deps_.validation, size, deps_.config->train.validation_microbatches);
  const auto source = [&](int64_t index) -> absl::StatusOr<Microbatch> {
    return ReadValidationMicrobatch(*deps_.validation, size, index, stop);
  };
  ASSIGN_OR_RETURN(const double loss, deps_.trainer->Evaluate(count, source, stop));
  if (rank_ == 0) deps_.shell->Send(ValidationMessage{generation, step, loss});
  return absl::OkStatus();
}

void Worker::Update(const UpdateTask& task) {
  deps_.shell->SetPhase(Phase::kUpdate, task.step);
  HOLDFAST_CHECK(prepared_.step == task.step);
  deps_.trainer->Commit(prepared_);
  if (flip_.after_step == task.step) Flip(deps_.trainer->state(), rank_, std::exchange(flip_, {}).where);
  if (task.save_for != 0) BeginSave(task.step, task.save_for);
}

void Worker::BeginSave(int64_t step, uint64_t generation) const {
  if (deps_.checkpointer == nullptr) return;
  deps_.checkpointer->Begin({step, generation}, rank_, world_size_,
                            deps_.trainer->StartSnapshot(deps_.checkpointer->staging_bytes()));
}

// Where it goes may not answer now, and answer later: it is waited for, as room is. Other ranks are not, from whom the
// weights come.
absl::Status Worker::SaveModel(uint64_t generation) const {
  return deps_.trainer->WithWeights([&](const ReadWeightsFn& read) -> absl::Status {
    absl::Status gathered;
    const auto gather = [&](int64_t first, absl::Span<float> out) {
      gathered = read(first, out);
      return gathered;
    };
    const absl::Status saved = deps_.save_model(gather, generation);
    return gathered.ok() && MayPass(saved) ? absl::ResourceExhaustedError(saved.message()) : saved;
  });
}

absl::Status Worker::End(const EndingTask& task, const std::stop_token& stop) {
  loader_.reset();
  RETURN_IF_ERROR(AwaitMirrors(task.step));
  if (task.save) BeginSave(task.step, task.generation);
  if (task.purpose == Purpose::kTrain) RETURN_IF_ERROR(Validate(task.generation, task.step, stop));
  deps_.shell->SetPhase(Phase::kSave, task.step);
  RETURN_IF_ERROR(SaveModel(task.generation));
  if (deps_.checkpointer != nullptr) deps_.checkpointer->Finish(stop);
  deps_.shell->SetPhase(Phase::kIdle, task.step);
  return absl::OkStatus();
}

}  // namespace holdfast
