// Checkpoints: when one is begun, when it exists, and when the run goes back to one.

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

constexpr size_t kMaxFileNameBytes = 256;

bool IsSane(const SavedFile& file) {
  return file.name.size() <= kMaxFileNameBytes && file.digest.size() <= kMaxFileNameBytes;
}

}  // namespace

// Of a step that has just been committed. One at a time; the last step is saved by the end of the run.
bool Coordinator::MaySave() {
  if (!schedule_.enabled()) return false;
  const bool last = committed_ == options_.total_steps;
  if (!schedule_.IsDue(now_, committed_) && !last) return false;
  if (!last && !saves_.empty()) {
    ++skipped_saves_;
    return false;
  }
  return true;
}

void Coordinator::BeginSave() {
  saves_.Begin(committed_, open_->world, /*at_end=*/Ending());
  if (last_validation_.has_value()) saves_.saves().back().validation_loss = last_validation_->second;
  if (last_digest_.has_value() && last_digest_->first == committed_) {
    saves_.saves().back().state_digest = last_digest_->second;
  }
  save_begun_ = now_;
  schedule_.OnBegun(now_);
}

/// A run that ends leaves a checkpoint of its last step, unless there is one.
bool Coordinator::MustSaveAtEnd() const {
  return schedule_.enabled() && Ending() && committed_ > 0 &&
         std::none_of(checkpoints_.begin(), checkpoints_.end(),
                      [&](const CheckpointChoice& c) { return c.step == committed_; });
}

void Coordinator::Handle(Connection from, const SavedMessage& saved) {
  const JoinedWorker* worker = roster_.FindByConnection(from);
  if (ended_ || worker == nullptr || !IsSane(saved.data) || !IsSane(saved.index)) return;
  PendingSaves::Save* save = saves_.OnSaved(worker->member.id, saved);
  if (save == nullptr) return;
  if (!saved.cause.empty()) {
    const std::string cause =
        absl::StrCat(worker->member.id.name, " on ", worker->member.host, ": ", saved.cause.substr(0, kMaxTextBytes));
    saves_.Remove(saved.step, saved.generation);
    SaveFailed(saved.step, cause);
    return;
  }
}

// Looked at after every event, as there is more than one that a checkpoint may have waited for.
void Coordinator::CommitSaves() {
  if (ended_) return;
  for (PendingSaves::Save& save : saves_.saves()) {
    if (save.missing > 0 || save.committing || AwaitsValidation(save.step)) continue;
    save.committing = true;
    CommitCheckpointAction commit;
    commit.step = save.step;
    commit.generation = save.world.generation;
    commit.validation_loss = save.validation_loss;
    commit.data_digest = data_digest_;
    commit.state_digest = save.state_digest;
    for (const auto& shard : save.shards) {
      commit.shards.push_back(*shard);
      commit.stall_seconds = std::max(commit.stall_seconds, shard->stall_seconds);
    }
    actions_.emplace_back(std::move(commit));
  }
}

// "Best by validation loss" is about the state a checkpoint holds, so its own validation comes first if there is one.
bool Coordinator::AwaitsValidation(int64_t step) const {
  const int64_t every = options_.validate_every_steps;
  const bool due = options_.validates && (step == options_.total_steps || (every > 0 && step % every == 0));
  const bool done = last_validation_.has_value() && last_validation_->first >= step;
  return due && !done && committed_ == step && stop_signal_ == 0;
}

void Coordinator::On(const CheckpointDoneEvent& done) {
  saves_.Remove(done.step, done.generation);
  SetUsable(done.usable);
  if (ended_) return;
  if (!done.cause.empty()) {
    SaveFailed(done.step, done.cause);
    if (done.fenced) {
      Fail(done.cause);
      return;
    }
  } else if (branch_.Includes(done.generation, done.step)) {
    if (save_failure_.has_value() && save_failure_->first <= done.step) save_failure_.reset();
    const double seconds = std::chrono::duration<double>(now_ - save_begun_).count();
    schedule_.OnSaved(done.stall_seconds, seconds);
    Report(event::CheckpointSaved{.step = done.step,
                                  .name = done.name,
                                  .bytes = done.bytes,
                                  .seconds = seconds,
                                  .stall_seconds = done.stall_seconds,
                                  .skipped = std::exchange(skipped_saves_, 0)});
    if (const auto interval = schedule_.TakeNewInterval(now_)) {
      Report(event::CheckpointInterval{interval->seconds, interval->cost_seconds, interval->failure_seconds});
    }
  }
  EndIfFinished();
}

void Coordinator::On(const CheckpointsTidiedEvent& tidied) {
  SetUsable(tidied.usable);
  if (!ended_ && !tidied.warning.empty()) Report(event::CheckpointWarning{committed_, tidied.warning});
}

// What was given up is still there until it is deleted, and so is what was written of steps whose record was lost.
void Coordinator::SetUsable(std::vector<CheckpointChoice> usable) {
  std::erase_if(usable, [&](const CheckpointChoice& c) {
    return c.step > committed_ || !branch_.Includes(c.generation, c.step);
  });
  checkpoints_ = std::move(usable);
}

void Coordinator::SaveFailed(int64_t step, const std::string& cause) {
  Report(event::CheckpointFailed{step, cause});
  save_failure_ = {step, cause};
  EndIfFinished();
}

// Somebody is gone whose part of a checkpoint will never be durable.
void Coordinator::AbandonSavesOf(const WorkerId& id) {
  for (const PendingSaves::Save& save : saves_.TakeThoseOf(id)) {
    const std::string cause = absl::StrCat(id.name, " was lost while writing it");
    Report(event::CheckpointFailed{save.step, cause});
    save_failure_ = {save.step, cause};
  }
}

bool Coordinator::Rewind(const std::string& reason) {
  if (checkpoints_.empty()) return false;
  const CheckpointChoice choice = checkpoints_.front();
  GoBackTo(choice, reason, absl::StrCat("from checkpoint ", choice.name));
  return true;
}

// Everything was killed before the first checkpoint: nothing is lost by doing it again, the bits will be the same.
void Coordinator::BeginAnew() {
  GoBackTo({}, "all workers are new, and there is no checkpoint", "the run begins anew");
}

void Coordinator::GoBackTo(const CheckpointChoice& choice, const std::string& reason,
                           const std::string& for_the_world) {
  if (had_world_ || committed_ > choice.step) {
    Report(event::Rewind{.from_step = committed_, .step = choice.step, .name = choice.name, .reason = reason});
  }
  LoadFrom(choice);
  reason_ = for_the_world;
  had_to_wait_ = false;
}

void Coordinator::LoadFrom(const CheckpointChoice& choice) {
  if (committed_ > choice.step) {
    branch_.GoBack({.generation = generation_, .step = choice.step});
    actions_.emplace_back(PersistAction{generation_, branch_});
  }
  committed_ = choice.step;
  agreed_ = choice.step;  // all holders load the same
  load_ = choice.name;
  source_ = entered_ = {};
  claims_open_ = false;
  doubt_.reset();
  missing_since_.reset();
  if (last_validation_.has_value() && last_validation_->first > choice.step) last_validation_.reset();
  saves_.Clear();
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
  if (whole_ == load_) return RemoveDoubter(id, cause);
  doubt_ = {id, cause};
  actions_.emplace_back(VerifyCheckpointAction{load_});
  CloseWorld(absl::StrCat(id.name, " could not load ", load_), 0);
  waiting_for_ = absl::StrCat("reading all of checkpoint ", load_, ", which ", id.name, " could not load: ", cause);
}

void Coordinator::On(const CheckpointVerifiedEvent& verified) {
  if (ended_ || !doubt_.has_value() || verified.name != load_) return;
  const auto [id, cause] = *std::exchange(doubt_, std::nullopt);
  if (verified.damaged) {
    RejectCheckpoint(verified.cause);
  } else {
    if (verified.cause.empty()) whole_ = load_;
    RemoveDoubter(id, cause);
  }
  Advance();
}

void Coordinator::RemoveDoubter(const WorkerId& id, const std::string& cause) {
  const JoinedWorker* found = roster_.Find(id.name);
  if (found == nullptr || found->member.id != id) return;
  const JoinedWorker worker = *found;
  Remove(id.name,
         absl::StrCat("it cannot load checkpoint ", load_, whole_ == load_ ? ", which is whole: " : ": ", cause,
                      " (does ", worker.member.host, " have the run's checkpoint.directory?)"),
         Leave::kRefused);
  if (worker.rank < 0) RecordFailure(worker, /*at_fault=*/true);
}

// It is damaged: the next older one.
void Coordinator::RejectCheckpoint(const std::string& cause) {
  Report(event::CheckpointRejected{load_, cause});
  std::erase_if(checkpoints_, [&](const CheckpointChoice& c) { return c.name == load_; });
  const std::string bad = std::exchange(load_, "");
  CloseWorld(absl::StrCat("checkpoint ", bad, " cannot be used"), 0);
  if (!Rewind(absl::StrCat(bad, " cannot be used: ", cause))) {
    Fail(absl::StrCat("checkpoint ", bad, " cannot be used (", cause, "), and there is no older one"));
  }
}

}  // namespace holdfast
