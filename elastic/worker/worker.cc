#include "elastic/worker/worker.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/control/state_source.h"
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

// In the first moment, which no forward pass reads: only the comparison of copies can see it.
void Flip(ShardedState& state, int rank, bool in_mirror) {
  const ParameterLayout& layout = state.map().layout();
  for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
    if (!state.Holds(chunk) || (state.map().PrimaryOf(chunk) == rank) == in_mirror) continue;
    std::vector<std::byte> bytes(state.layout().ChunkBytes(layout.chunks()[static_cast<size_t>(chunk)]));
    state.ReadChunk(chunk, bytes.data());
    bytes[bytes.size() / 2] ^= std::byte{4};
    state.WriteChunk(chunk, bytes.data());
    return;
  }
}

/// No host could do better: the numbers are not finite, the data do not suffice. A full disk, memory or handles that
/// are used up, files that cannot be read: another host may, or this one later.
bool IsFatal(const absl::Status& status) { return absl::IsOutOfRange(status) || absl::IsFailedPrecondition(status); }

}  // namespace

Worker::Worker(const WorkerParts& parts)
    : p_(parts), order_(parts.training->num_samples(), parts.config->run.seed, parts.config->data.shuffle) {}

template <typename Result, typename MakeEvent>
void Worker::Answer(const Result& result, const std::stop_token& stop, int64_t step, uint64_t generation,
                    MakeEvent&& make_event) {
  absl::Status status;
  if constexpr (std::is_same_v<Result, absl::Status>) {
    status = result;
  } else {
    status = result.status();
  }
  if (status.ok()) return p_.shell->Answer(make_event());
  if (p_.on_peer_failure != nullptr && !IsFatal(status)) p_.on_peer_failure(status, stop);
  p_.trainer->Abort(std::string(status.message()));  // the others must not wait for what will not come
  p_.shell->Answer(TaskFailed{FailureMessage{.generation = generation,
                                             .step = step,
                                             .phase = p_.shell->phase(),
                                             .cause = std::string(status.message()),
                                             .suspects = BlamedRanks(status),
                                             .fatal = !bad_checkpoint_ && IsFatal(status),
                                             .bad_checkpoint = bad_checkpoint_,
                                             .secondhand = absl::IsAborted(status)}});
}

Worker::Exit Worker::Run() {
  while (true) {
    SessionShell::Next next = p_.shell->NextTask();
    // Communication under way ends at once when the world has changed; the rest looks at the token.
    const std::stop_callback on_stop(next.stop, [this] { p_.trainer->Abort("the world has changed"); });
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
      p_.trainer->Forget();
    } else {
      const auto& exit = std::get<ExitTask>(next.task);
      p_.trainer->EndMirrorFill();  // it tells the shell, which may go before the trainer
      return {exit.exit_code, exit.reason, p_.shell->refused()};
    }
  }
}

absl::StatusOr<WorldCommunicators> Worker::Connect(const WorldMessage& message, const Placement& placement,
                                                   const std::stop_token& stop) {
  WorldCommunicators result;
  const int size = message.world.size();
  if (size == 1) return result;
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
  if (p_.trainer->InParts(placement)) add_groups(&result.parts);
  // NCCL promises little of communicators that work at the same time: there mirrors are filled before the step.
  const bool fills_mirrors = message.source.generation != 0 && placement.num_mirrors() > 0 &&
                             p_.config->parallel.transport != Transport::kNccl;
  if (fills_mirrors) add(everybody, &result.mirrors);
  const auto deadline = Clock::now() + std::chrono::milliseconds(p_.config->elastic.collective_timeout_ms);
  ASSIGN_OR_RETURN(auto communicators, p_.connect(message.world, rank_, groups, stop, deadline));
  for (size_t i = 0; i < communicators.size(); ++i) {
    if (communicators[i] != nullptr) *kinds[i] = std::move(communicators[i]);
  }
  return result;
}

absl::StatusOr<RecoveredMessage> Worker::Recover(const RecoverTask& task, const SessionShell::Next& next) {
  const WorldMessage& message = task.world;
  const Clock::time_point start = Clock::now();
  p_.shell->SetPhase(Phase::kRendezvous, message.committed_step + 1);
  rank_ = message.world.RankOf(p_.shell->member().id);
  HOLDFAST_CHECK(rank_ >= 0);
  world_size_ = message.world.size();
  bad_checkpoint_ = false;
  loader_.reset();
  Placement placement = PlacementOf(message.world, p_.config->parallel);
  ASSIGN_OR_RETURN(WorldCommunicators communicators, Connect(message, placement, next.stop));
  RecoveredMessage report{.generation = message.world.generation};
  report.abort_seconds = next.abort_seconds;
  report.rendezvous_seconds = SecondsSince(start);
  p_.shell->SetPhase(Phase::kTransfer, message.committed_step + 1);
  TrainerWorld view = ViewOf(message, std::move(placement), p_.config->parallel, rank_);
  if (!message.checkpoint.empty()) {
    view.load = [&](ShardedState& state, const std::stop_token& stop) { return Load(message.checkpoint, state, stop); };
  }
  const uint64_t generation = message.world.generation;
  view.on_mirrored = [shell = p_.shell, generation] { shell->MirrorsFilled(generation); };
  const uint64_t entered = std::exchange(entered_, 0);  // here, for tasks before this one may have been dropped
  view.source_is_entered = entered != 0 && entered == message.source.generation;
  ASSIGN_OR_RETURN(report.bytes_received, p_.trainer->EnterWorld(view, std::move(communicators), next.stop));
  report.mirror_bytes = p_.trainer->mirror_bytes_to_come();
  entered_ = message.world.generation;
  report.transfer_seconds = SecondsSince(start) - report.rendezvous_seconds;
  p_.shell->SetPhase(Phase::kIdle, message.committed_step + 1);
  return report;
}

absl::Status Worker::Load(const std::string& name, ShardedState& state, const std::stop_token& stop) {
  if (p_.checkpointer == nullptr) return absl::FailedPreconditionError("this worker has no checkpoint storage");
  absl::Status status = p_.checkpointer->Load(name, state, stop);
  // Damaged, or gone, or of another model: an older one may do. A storage that cannot be reached says nothing about it.
  bad_checkpoint_ = absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  return status;
}

void Worker::PointLoaderAt(const StepTask& task) {
  if (loader_.has_value() && loader_plan_.step == task.step && loader_plan_.microbatches == task.microbatches) return;
  const std::vector<int64_t> indices = p_.trainer->MicrobatchesHere(task.microbatches);
  loader_.reset();
  loader_plan_ = {task.step, task.microbatches};
  if (indices.empty()) return;
  const BatchConfig& batch = p_.config->batch;
  loader_.emplace(*p_.training, order_,
                  Loader::Options{.shape = {batch.microbatches, batch.microbatch_size},
                                  .first_step = task.step,
                                  .indices = indices,
                                  .threads = static_cast<int>(p_.config->data.loader_threads)});
}

bool Worker::IsDigestStep(int64_t step) const {
  const int64_t every = p_.config->log.digest_every_steps;
  return step == p_.config->train.steps || (every > 0 && step % every == 0);
}

absl::StatusOr<VoteMessage> Worker::Prepare(const StepTask& task, const std::stop_token& stop) {
  const int64_t every = p_.config->train.validate_every_steps;
  if (every > 0 && task.step > 1 && (task.step - 1) % every == 0) {
    RETURN_IF_ERROR(Validate(task.generation, task.step - 1, stop));
  }
  p_.shell->SetPhase(Phase::kData, task.step);
  PointLoaderAt(task);
  p_.shell->SetPhase(Phase::kForwardBackward, task.step);
  const auto source = [&](int64_t index) {
    if (p_.slowdown.count() > 0) std::this_thread::sleep_for(p_.slowdown);
    return loader_->Next(task.step, index, stop);
  };
  ASSIGN_OR_RETURN(prepared_, p_.trainer->Prepare({task.step, task.microbatches}, source, stop));
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
  if (p_.checkpointer != nullptr) vote.stall_seconds = p_.checkpointer->TakeStallSeconds();
  vote.microbatches = prepared_.microbatches;
  vote.exchanged = prepared_.exchanged;
  if (IsDigestStep(task.step)) {
    for (const auto& [chunk, digest] : p_.trainer->DigestsAfter(prepared_)) vote.digests.push_back({chunk, digest});
  }
  for (const auto& [chunk, digest] : p_.trainer->DigestsOfCopiesAfter(prepared_, IsDigestStep(task.step))) {
    vote.copies.push_back({chunk, digest});
  }
  p_.shell->SetPhase(Phase::kVote, task.step);
  return vote;
}

absl::Status Worker::AwaitMirrors(int64_t step) const {
  if (p_.trainer->mirrored()) return absl::OkStatus();
  p_.shell->SetPhase(Phase::kTransfer, step);
  return p_.trainer->AwaitMirrors();
}

absl::Status Worker::Validate(uint64_t generation, int64_t step, const std::stop_token& stop) const {
  if (p_.validation == nullptr) return absl::OkStatus();
  p_.shell->SetPhase(Phase::kValidation, step);
  const int64_t size = p_.config->batch.microbatch_size;
  const int64_t whole_set = (p_.validation->num_samples() + size - 1) / size;
  const int64_t limit = p_.config->train.validation_microbatches;
  const int64_t count = limit > 0 ? std::min(limit, whole_set) : whole_set;
  const auto source = [&](int64_t index) -> absl::StatusOr<Microbatch> {
    return ReadValidationMicrobatch(*p_.validation, size, index);
  };
  ASSIGN_OR_RETURN(const double loss, p_.trainer->Evaluate(count, source, stop));
  if (rank_ == 0) p_.shell->Send(ValidationMessage{generation, step, loss});
  return absl::OkStatus();
}

void Worker::Update(const UpdateTask& task) {
  p_.shell->SetPhase(Phase::kUpdate, task.step);
  HOLDFAST_CHECK(prepared_.step == task.step);
  p_.trainer->Commit(prepared_);
  if (p_.flip.after_step == task.step) Flip(p_.trainer->state(), rank_, p_.flip.in_mirror);
  if (task.save_for != 0) BeginSave(task.step, task.save_for);
}

void Worker::BeginSave(int64_t step, uint64_t generation) const {
  if (p_.checkpointer == nullptr) return;
  p_.checkpointer->Begin({step, generation}, rank_, world_size_,
                         p_.trainer->StartSnapshot(p_.checkpointer->staging_bytes()));
}

absl::Status Worker::End(const EndingTask& task, const std::stop_token& stop) {
  loader_.reset();
  RETURN_IF_ERROR(AwaitMirrors(task.step));
  if (task.save) BeginSave(task.step, task.generation);
  if (task.purpose == Purpose::kTrain) RETURN_IF_ERROR(Validate(task.generation, task.step, stop));
  p_.shell->SetPhase(Phase::kSave, task.step);
  RETURN_IF_ERROR(p_.trainer->WithWeights(p_.save_model));
  if (p_.checkpointer != nullptr) p_.checkpointer->Finish(stop);
  p_.shell->SetPhase(Phase::kIdle, task.step);
  return absl::OkStatus();
}

}  // namespace holdfast
