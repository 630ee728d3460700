// Checkpoints: when one is begun, when it exists, and when the run goes back to one.

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "framework/base/clip_text.h"
#include "framework/base/join_first.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

constexpr size_t kMaxFileNameBytes = 256;

bool IsSane(const SavedFile& file) {
  return file.name.size() <= kMaxFileNameBytes && file.digest.size() <= kMaxFileNameBytes;
}

}  // namespace

/// A run that ends leaves a checkpoint of its last step, unless there is one.
bool Coordinator::MustSaveAtEnd() const {
  return checkpoints_.enabled() && Ending() && committed_ > 0 && !checkpoints_.Has(committed_);
}

void Coordinator::Handle(Connection from, const SavedMessage& saved) {
  const JoinedWorker* worker = roster_.FindByConnection(from);
  if (end_.over() || worker == nullptr || !IsSane(saved.data) || !IsSane(saved.index)) return;
  PendingSaves::Save* save = checkpoints_.pending().OnSaved(worker->member.id, saved);
  if (save == nullptr) return;
  if (!saved.cause.empty()) {
    const std::string cause =
        absl::StrCat(worker->member.id.name, " on ", worker->member.host, ": ", ClipText(saved.cause, kMaxTextBytes));
    checkpoints_.pending().Remove(saved.step, saved.generation);
    SaveFailed(saved.step, {cause, saved.no_room});
    MakeRoom(saved.step + 1, saved.generation);  // also a place, and our claim there, that somebody has removed
    return;
  }
}

// Looked at after every event, as there is more than one that a checkpoint may have waited for.
void Coordinator::CommitSaves() {
  if (end_.over()) return;
  for (PendingSaves::Save& save : checkpoints_.pending().saves()) {
    if (save.missing > 0 || save.committing || AwaitsValidation(save.step)) continue;
    save.committing = true;
    CommitCheckpointAction commit;
    commit.step = save.step;
    commit.generation = save.world.generation;
    commit.validation_loss = save.validation_loss;
    commit.data_digest = data_digest_;
    commit.kernel_digest = kernels_;
    commit.state_digest = save.state_digest;
    for (const auto& shard : save.shards) {
      commit.shards.push_back(*shard);
      commit.stall_seconds = std::max(commit.stall_seconds, shard->stall_seconds);
    }
    actions_.emplace_back(std::move(commit));
  }
}

bool Coordinator::IsValidationStep(int64_t step) const {
  const int64_t every = options_.validate_every_steps;
  return options_.validates && (step == options_.total_steps || (every > 0 && step % every == 0));
}

// Its loss is known only later, so every state that is validated is one.
bool Coordinator::MayBeBest() const { return options_.checkpoint.keep_best > 0 && IsValidationStep(committed_); }

/// Of the committed state.
std::optional<double> Coordinator::LossNow() const {
  const std::optional<ValidationResult> result = validations_.Of(committed_);
  return result.has_value() ? std::optional(result->loss) : std::nullopt;
}

// "Best by validation loss" is about the state a checkpoint holds, so its own validation comes first if there is one.
// Nobody makes it while too few are there, and the last of them may go before others come.
bool Coordinator::AwaitsValidation(int64_t step) const {
  return IsValidationStep(step) && !validations_.Has(step) && committed_ == step && end_.stop() == nullptr &&
         !formation_.stands_still();
}

void Coordinator::On(const CheckpointDoneEvent& done) {
  const std::optional<PendingSaves::Save> save = checkpoints_.pending().Remove(done.step, done.generation);
  checkpoints_.SetUsable(done.usable, committed_, branch_);
  if (end_.over()) return;
  if (!done.cause.empty()) {
    SaveFailed(done.step, {done.cause, done.no_room});
    if (done.fenced) {
      Fail(done.cause);
      return;
    }
    // Not of this one, which may exist in spite of the error.
    if (done.no_room) MakeRoom(done.step, done.generation);
  } else if (branch_.Includes(done.generation, done.step)) {
    const CheckpointControl::Done saved =
        checkpoints_.OnDone(now_, save.has_value() ? save->begun : now_, done.step, done.stall_seconds);
    Report(event::CheckpointSaved{.step = done.step,
                                  .name = done.name,
                                  .bytes = done.bytes,
                                  .seconds = saved.seconds,
                                  .stall_seconds = done.stall_seconds,
                                  .skipped = saved.skipped});
    if (const auto& interval = saved.interval; interval.has_value() && !Ending()) {
      Report(event::CheckpointInterval{interval->seconds, interval->cost_seconds, interval->failure_seconds,
                                       interval->failures});
    }
  }
  EndIfFinished();
}

void Coordinator::On(const CheckpointsTidiedEvent& tidied) {
  checkpoints_.SetUsable(tidied.usable, committed_, branch_);
  // The same may keep one from being deleted after each checkpoint.
  const bool is_news = std::exchange(tidied_warning_, tidied.warning) != tidied.warning;
  if (!end_.over() && is_news && !tidied.warning.empty()) Report(event::CheckpointWarning{committed_, tidied.warning});
}

// What writers that were lost have left of earlier checkpoints may be what fills the storage, and only a checkpoint
// that begins to exist would clear it away. Not while another one is being written: it may be older.
void Coordinator::MakeRoom(int64_t step, uint64_t generation) {
  if (!checkpoints_.pending().empty() || end_.over()) return;
  room_to_make_ = {step, generation};
  if (!Ending()) MakeRoomNow();
}

// At the end of a run only for another attempt. A run that ends waits for it: with a storage that does not answer, for
// as long again as it has waited for the checkpoint.
void Coordinator::MakeRoomNow() {
  if (room_to_make_.has_value()) actions_.emplace_back(*room_to_make_);
  room_to_make_.reset();
}

void Coordinator::SaveFailed(int64_t step, CheckpointControl::Failure failure) {
  Report(event::CheckpointFailed{step, failure.cause});
  checkpoints_.OnFailed(step, std::move(failure));
  EndIfFinished();
}

// A storage that hangs (a file system of a server that is gone) fails nothing: no other checkpoint is begun, or there
// is no world until the one in doubt is read.
void Coordinator::ReportSlowStorage() {
  const auto is_slow = [&](Instant since) {
    return now_ - since > std::chrono::milliseconds(options_.elastic.progress_timeout_ms);
  };
  const auto report = [&](Instant since, int64_t step, const std::string& name, const std::string& what,
                          const std::string& rest) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now_ - since).count();
    Report(event::CheckpointWarning{.step = step,
                                    .cause = absl::StrCat("checkpoint ", name, ": ", what, " after ", seconds, " s",
                                                          rest, " meanwhile; is its storage slow, or hanging?"),
                                    .seconds = std::chrono::duration<double>(now_ - since).count()});
  };
  for (PendingSaves::Save& save : checkpoints_.pending().saves()) {
    const bool awaits_loss = save.missing == 0 && !save.committing;
    if (awaits_loss || save.reported_slow || !is_slow(save.begun)) continue;
    save.reported_slow = true;
    std::vector<std::string> writers;
    for (size_t rank = 0; rank < save.shards.size(); ++rank) {
      if (save.shards[rank].has_value()) continue;
      const Member& member = save.world.members[rank];
      writers.push_back(absl::StrCat(member.id.name, " on ", member.host));
    }
    if (writers.empty()) writers.emplace_back("the coordinator, though all its parts are there");
    report(save.begun, save.step, absl::StrCat("of step ", save.step), "not written",
           absl::StrCat(" by ", JoinFirst(writers, 1), ", and no other is begun"));
  }
  CheckpointControl::Doubt* doubt = checkpoints_.doubt();
  if (doubt == nullptr || doubt->reported_slow || !is_slow(doubt->since)) return;
  doubt->reported_slow = true;
  report(doubt->since, committed_, state_.checkpoint(), "not read", ", and there is no world");
}

// Somebody is gone whose part of a checkpoint will never be durable.
void Coordinator::AbandonSavesOf(const WorkerId& id) {
  for (const PendingSaves::Save& save : checkpoints_.pending().TakeThoseOf(id)) {
    const std::string cause = absl::StrCat(id.name, " was lost while writing it");
    Report(event::CheckpointFailed{save.step, cause});
    checkpoints_.OnFailed(save.step, {cause});
  }
}

bool Coordinator::Rewind(const std::string& reason) {
  if (checkpoints_.newest() == nullptr) return false;
  const CheckpointChoice choice = *checkpoints_.newest();
  GoBackTo(choice, reason);
  return true;
}

// Everything was killed before the first checkpoint: nothing is lost by doing it again, the bits will be the same.
void Coordinator::BeginAnew() { GoBackTo({}, "all workers are new, and there is no checkpoint"); }

// A run that has never had a checkpoint, and so no other config either: from step 0 its bits are the same.
bool Coordinator::MayBeginAnew() const {
  return options_.checkpoints.empty() && !options_.had_checkpoint && !checkpoints_.has_saved();
}

// Without a name: to step 0.
void Coordinator::GoBackTo(const CheckpointChoice& choice, const std::string& reason) {
  if (formation_.last_world().has_value() || committed_ > choice.step) {
    Report(event::Rewind{.from_step = committed_, .step = choice.step, .name = choice.name, .reason = reason});
  }
  LoadFrom(choice);
  formation_.SetReason(choice.name.empty() ? "starting from step 0" : absl::StrCat("from checkpoint ", choice.name));
  formation_.StopWaiting();
}

void Coordinator::LoadFrom(const CheckpointChoice& choice) {
  if (committed_ > choice.step) {
    branch_.GoBack({.generation = generation_, .step = choice.step});
    Persist();
  }
  committed_ = choice.step;
  agreed_ = choice.step;  // all holders load the same
  agreed_in_ = 0;
  state_.SetCheckpoint(choice.name);
  checkpoints_.GoBack(committed_, branch_);  // among which `choice` may be: it is gone
  validations_.GoBackTo(committed_);
  formation_.OnStateFound();
  for (auto& [name, worker] : roster_.workers()) {
    worker.holds_state = false;
    worker.claim = {};
  }
  actions_.emplace_back(RewindAction{committed_});
}

// A member could not load it. Its host may lack what others have: only what is damaged for the coordinator, too, is
// given up.
void Coordinator::DoubtCheckpoint(const JoinedWorker& worker, const std::string& cause) {
  const WorkerId id = worker.member.id;
  const std::string& name = state_.checkpoint();
  if (checkpoints_.IsWhole(name)) return RemoveDoubter(id, cause);
  checkpoints_.BeginToVerify({id, cause, now_});
  actions_.emplace_back(VerifyCheckpointAction{name});
  CloseWorld(absl::StrCat(id.name, " could not load ", name), 0);
  formation_.SetWaitingFor(
      absl::StrCat("reading all of checkpoint ", name, ", which ", id.name, " could not load: ", cause));
}

void Coordinator::On(const CheckpointVerifiedEvent& verified) {
  if (end_.over() || !checkpoints_.verifying() || verified.name != state_.checkpoint()) return;
  const CheckpointControl::Doubt doubt = checkpoints_.EndOfVerifying();
  if (verified.damaged) {
    RejectCheckpoint(verified.cause);
  } else {
    if (verified.cause.empty()) checkpoints_.SetWhole(verified.name);
    RemoveDoubter(doubt.worker, doubt.cause);
  }
  Advance();
}

void Coordinator::RemoveDoubter(const WorkerId& id, const std::string& cause) {
  const JoinedWorker* found = roster_.Find(id.name);
  if (found == nullptr || found->member.id != id) return;
  const JoinedWorker worker = *found;
  const std::string& name = state_.checkpoint();
  Remove(id.name,
         absl::StrCat("it cannot load checkpoint ", name, checkpoints_.IsWhole(name) ? ", which is whole: " : ": ",
                      cause, " (does ", worker.member.host, " have the run's checkpoint.directory?)"),
         Leave::kRefused);
  if (worker.rank < 0) RecordFailure(worker, /*at_fault=*/true);
}

// It is damaged: the next older one.
void Coordinator::RejectCheckpoint(const std::string& cause) {
  const std::string bad = state_.checkpoint();
  Report(event::CheckpointRejected{bad, cause});
  checkpoints_.Reject(bad);
  CloseWorld(absl::StrCat("checkpoint ", bad, " cannot be used"), 0);
  if (!Rewind(absl::StrCat(bad, " cannot be used: ", cause))) {
    Fail(absl::StrCat("checkpoint ", bad, " cannot be used (", cause,
                      "), and there is no older one: repair it, or start a new run with --overwrite"));
  }
}

}  // namespace holdfast
