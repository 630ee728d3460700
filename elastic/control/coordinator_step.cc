// What members of the open world report.

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/control/balance.h"
#include "elastic/control/coordinator.h"
#include "framework/base/clip_text.h"
#include "framework/base/join_first.h"
#include "framework/base/limits.h"

namespace holdfast {
namespace {

constexpr int kMaxEndings = 3;  // whose checkpoint failed
constexpr int64_t kMaxDisputes = 3;
constexpr size_t kMaxDiffering = 32;  // of thousands that differ

}  // namespace

JoinedWorker* Coordinator::MemberOf(Connection from, uint64_t generation) {
  if (end_.over() || !open_.has_value() || generation != open_->world.generation) return nullptr;
  JoinedWorker* worker = roster_.FindByConnection(from);
  return worker != nullptr && worker->rank >= 0 ? worker : nullptr;
}

void Coordinator::Handle(Connection from, const HeartbeatMessage& heartbeat) {
  JoinedWorker* worker = roster_.FindByConnection(from);
  if (worker == nullptr) return;
  if (heartbeat.progress != worker->beat.progress || heartbeat.phase != worker->beat.phase) worker->progressed = now_;
  worker->beat = heartbeat;
  worker->has_beaten = true;
}

void Coordinator::Handle(Connection from, const RendezvousMessage& rendezvous) {
  const JoinedWorker* worker = MemberOf(from, rendezvous.generation);
  if (worker == nullptr || open_->rank(worker->rank).has_blob) return;
  if (rendezvous.blob.size() > kMaxBlobBytes) {
    const std::string name = worker->member.id.name;
    Remove(name, absl::StrCat("its addresses take ", rendezvous.blob.size(), " bytes"), Leave::kRefused);
    Advance();
    return;
  }
  open_->rank(worker->rank).has_blob = true;
  open_->blobs[static_cast<size_t>(worker->rank)] = rendezvous.blob;
  if (++open_->blob_count < open_->size()) return;
  SendToMembers(PeersMessage{open_->world.generation, std::exchange(open_->blobs, {})});
}

void Coordinator::Handle(Connection from, const RecoveredMessage& recovered) {
  JoinedWorker* worker = MemberOf(from, recovered.generation);
  if (worker == nullptr || open_->rank(worker->rank).recovered) return;
  open_->rank(worker->rank).recovered = true;
  worker->entered = recovered.generation;
  worker->progressed = now_;
  open_->abort_seconds = std::max(open_->abort_seconds, recovered.abort_seconds);
  open_->rendezvous_seconds = std::max(open_->rendezvous_seconds, recovered.rendezvous_seconds);
  open_->transfer_seconds = std::max(open_->transfer_seconds, recovered.transfer_seconds);
  open_->bytes += recovered.bytes_received + recovered.mirror_bytes;
  open_->mirror_bytes += recovered.mirror_bytes;
  if (recovered.mirror_bytes == 0) MarkMirrored(worker->rank);
  if (++open_->recovered_count < open_->size()) return;
  open_->all_recovered = now_;
  ReportMirrors();
}

void Coordinator::Handle(Connection from, const MirroredMessage& mirrored) {
  const JoinedWorker* worker = MemberOf(from, mirrored.generation);
  if (worker == nullptr || open_->rank(worker->rank).mirrored) return;
  MarkMirrored(worker->rank);
  ReportMirrors();
}

void Coordinator::MarkMirrored(int rank) {
  if (!std::exchange(open_->rank(rank).mirrored, true)) ++open_->mirrored_count;
}

// All members can begin the step; whether one of them may be lost depends on the mirrors.
void Coordinator::ReportMirrors() {
  if (!open_->recovered()) return;
  if (open_->mirrored()) {
    state_.Enter(open_->world);
    if (!open_->reported_mirrors_missing) return;
    Report(event::MirrorsComplete{.generation = open_->world.generation,
                                  .step = committed_,
                                  .seconds = std::chrono::duration<double>(now_ - open_->all_recovered).count(),
                                  .bytes = open_->mirror_bytes});
  } else if (!open_->reported_mirrors_missing) {
    open_->reported_mirrors_missing = true;
    Report(event::MirrorsMissing{open_->world.generation, committed_, open_->mirror_bytes});
  }
}

void Coordinator::Handle(Connection from, const VoteMessage& vote) {
  JoinedWorker* worker = MemberOf(from, vote.generation);
  if (worker == nullptr || open_->purpose != Purpose::kTrain || committed_ >= options_.total_steps) return;
  if (!open_->ballot.Add(worker->rank, vote)) return;
  worker->progressed = now_;
  if (!open_->ballot.complete()) return;
  const std::vector<int> dissenters = open_->ballot.Dissenters();
  const std::vector<Ballot::Difference> differences = open_->ballot.DifferingCopies();
  if (!dissenters.empty() || !differences.empty()) {
    // Another world does the step. A member that is cut off, and does not hear of it, must not claim later to the
    // coordinator after this one that it holds the step as this world has computed it.
    branch_.GoBack({.generation = open_->world.generation, .step = committed_});
  }
  if (!dissenters.empty()) {
    RemoveDissenters(dissenters);
  } else if (!differences.empty()) {
    JudgeCopies(differences);
  } else {
    CommitStep();
  }
  Advance();
}

void Coordinator::CommitStep() {
  RecordStep();
  if (state_.source().generation != open_->world.generation) seats_.Remember(open_->world);
  state_.SetWorld(open_->world);
  std::erase_if(contradicted_, [&](const auto& entry) { return entry.second.step < committed_; });
  attempts_.disputes = attempts_.failed_endings = 0;
  EndWait();
  formation_.OnCommit();
  blame_.Clear();
  damaged_data_.Clear();
  open_->failed_since.reset();
  open_->unheard.clear();
  open_->links_are_known = false;
  open_->link_rounds = 0;
  MeasurePace();
  open_->last_commit = now_;
  open_->reported_no_progress = false;
  ReportRecovered();
  const bool all_leave = AllMembersLeave();
  const bool wanted = MayBeBest() || (all_leave && !saved_for_leavers_);
  CommitMessage commit{open_->world.generation,
                       committed_,
                       {},
                       checkpoints_.MaySave(now_, committed_, wanted, committed_ >= options_.total_steps)};
  saved_for_leavers_ = all_leave && (saved_for_leavers_ || commit.save);
  if (MeasureSpeeds()) commit.microbatches = open_->microbatches;
  if (commit.save) {
    checkpoints_.Begin(now_, committed_, open_->world, /*at_end=*/Ending(), LossNow());
  }
  for (auto& [name, worker] : roster_.workers()) {
    worker.holds_state = worker.rank >= 0;  // what others wait with has been overtaken
    if (worker.rank >= 0) worker.progressed = now_;
  }
  SendToMembers(std::move(commit));
  open_->ballot = Ballot(committed_ + 1, open_->size());
  SayGoodbye();
  ChangeMembers();
}

void Coordinator::RecordStep() {
  const VoteMessage& vote = open_->ballot.vote(0);
  RecordAction record{.step = ++committed_,
                      .loss_bits = vote.loss_bits,
                      .grad_norm_bits = vote.grad_norm_bits,
                      .lr = vote.lr,
                      .generation = open_->world.generation,
                      .world_size = open_->size(),
                      .peak_flops = open_->world.peak_flops(),
                      .stall_seconds = open_->ballot.StallSeconds(),
                      .exchanged = open_->ballot.Exchanged(),
                      .digests = open_->ballot.Digests(),
                      .validation = validations_.Of(committed_ - 1),
                      .figures = vote.figures};
  if (agreed_in_ == 0 || !record.digests.empty()) agreed_in_ = record.generation;
  if (!record.digests.empty()) {
    agreed_ = committed_;
    checkpoints_.OnDigest(committed_, StateDigest(record.digests));
  }
  actions_.emplace_back(std::move(record));
  ReportNoGradient(std::bit_cast<float>(vote.loss_bits), std::bit_cast<float>(vote.grad_norm_bits));
}

// An overflow may look so (the norm of huge values divides by infinity), and then stays for ever. The loss of a step in
// which no token is learned is 0, too.
void Coordinator::ReportNoGradient(float loss, float grad_norm) {
  if (grad_norm != 0 || loss == 0 || std::exchange(told_no_gradient_, true)) return;
  Report(event::NoGradient{.step = committed_, .loss = loss});
}

// Between two steps leavers go and newcomers come in.
void Coordinator::ChangeMembers() {
  if (LeaversCanGo()) {
    const auto leaves = std::find_if(leaving_.begin(), leaving_.end(), [](const auto& l) { return !l.second.gone; });
    CloseWorld(leaves == leaving_.end() ? "there are more workers than elastic.max_workers"
                                        : absl::StrCat("node ", leaves->first, " leaves"),
               0);
  } else if (WantsNewcomers()) {
    CloseWorld("workers have joined", 0);
  }
}

// True if microbatches have moved.
bool Coordinator::MeasureSpeeds() {
  std::vector<StragglerDetector::Sample> samples;
  for (int rank = 0; rank < open_->size(); ++rank) {
    const VoteMessage& vote = open_->ballot.vote(rank);
    const std::string& name = open_->world.members[static_cast<size_t>(rank)].id.name;
    samples.push_back({name, vote.compute_seconds, vote.microbatches});
  }
  for (const StragglerDetector::Change& change : stragglers_.OnStep(samples)) {
    const JoinedWorker* worker = roster_.Find(change.worker);
    const event::StragglerFields fields{.worker = change.worker,
                                        .rank = worker == nullptr ? -1 : worker->rank,
                                        .host = worker == nullptr ? "" : worker->member.host,
                                        .factor = change.factor,
                                        .own_factor = change.own_factor,
                                        .phase = Phase::kForwardBackward,
                                        .step = committed_,
                                        .reason = change.reason};
    Report(change.slow ? RunEvent(event::Straggler{fields}) : event::StragglerResolved{fields});
  }
  if (!options_.elastic.rebalance || committed_ % options_.elastic.straggler_steps != 0) return false;
  std::vector<double> seconds;
  for (const auto& sample : samples) seconds.push_back(stragglers_.SecondsOf(sample.worker));
  std::vector<int64_t> better = Rebalance(open_->microbatches, seconds);
  if (better == open_->microbatches) return false;
  open_->microbatches = std::move(better);
  Report(event::Rebalanced{committed_, open_->microbatches});
  return true;
}

// Two computations of the same thing differ: memory or arithmetic of somebody is broken. The majority is believed; the
// others give up their state and their place. Without a majority nobody knows better, so the step is done again. So it
// is where the run would end without the others, as nobody else has what they hold and there is no checkpoint: the
// fault may have been a passing one.
void Coordinator::RemoveDissenters(const std::vector<int>& ranks) {
  std::vector<std::string> names, bits;
  for (const int rank : ranks) {
    const VoteMessage& vote = open_->ballot.vote(rank);
    names.push_back(open_->world.members[static_cast<size_t>(rank)].id.name);
    bits.push_back(absl::StrCat(absl::Hex(vote.loss_bits, absl::kZeroPad8), "/",
                                absl::Hex(vote.grad_norm_bits, absl::kZeroPad8), "/",
                                absl::Hex(vote.statistics_digest, absl::kZeroPad16)));
  }
  const std::string who = JoinFirst(names, kMaxDiffering);
  const bool majority = static_cast<int>(ranks.size()) < open_->size();
  const std::set<std::string> dissenters(names.begin(), names.end());
  const bool can_spare = CanSpare([&](const Member& member) { return dissenters.contains(member.id.name); });
  const bool removed = majority && (can_spare || checkpoints_.newest() != nullptr);
  Report(event::BitsDiffer{
      .step = committed_ + 1, .workers = who, .bits = JoinFirst(bits, kMaxDiffering), .majority = removed});
  if (removed) {
    const std::string cause = absl::StrCat("its loss or gradient norm of step ", committed_ + 1, " has other bits");
    RemoveContradicted(names, cause);
  } else if (++attempts_.disputes < kMaxDisputes) {
    CloseWorld(absl::StrCat("the bits of step ", committed_ + 1, " differ: ", who), 0);
  } else {
    Fail(absl::StrCat(majority ? "the only holders of a part of the state are a minority about" : "no majority for",
                      " the bits of step ", committed_ + 1, " in ", attempts_.disputes, " attempts (", who,
                      "): memory or processor of one of these hosts is faulty; replace it and start the run again"));
  }
}

// Their state may be wrong. If the stream of one has just ended it does not learn that it is to give it up, and comes
// back with it, maybe to the coordinator after this one.
void Coordinator::RemoveContradicted(const std::vector<std::string>& names, const std::string& cause) {
  for (const std::string& name : names) {
    contradicted_[name] = {roster_.Find(name)->member.id.incarnation, committed_ + 1};
    history_.Contradicted(name, TimeSince1970());
  }
  Persist();
  for (const std::string& name : names) {
    const Member member = roster_.Find(name)->member;
    Remove(name, cause, Leave::kRefused);
    if (!history_.KeptOut(name)) continue;
    Report(event::KeptOut{.worker = name,
                          .node = member.node,
                          .host = member.host,
                          .pid = member.pid,
                          .contradictions = WorkerHistory::kMaxContradictions});
  }
}

// The holders of a chunk have other bits of it: somebody's memory is broken. A minority gives up its state and its
// place, before anybody uses its copy. Where no copy has a majority, as with two holders, nobody knows who is right.
void Coordinator::JudgeCopies(const std::vector<Ballot::Difference>& differences) {
  std::set<int> wrong, doubtful;
  bool read = false;
  for (const Ballot::Difference& difference : differences) {
    (difference.majority ? wrong : doubtful).insert(difference.ranks.begin(), difference.ranks.end());
    read |= difference.read;
  }
  const auto names_of = [&](const std::set<int>& ranks) {
    std::vector<std::string> names;
    for (const int rank : ranks) {
      const Member& member = open_->world.members[static_cast<size_t>(rank)];
      names.push_back(absl::StrCat(member.id.name, " on ", member.host));
    }
    return JoinFirst(names, kMaxDiffering);
  };
  const bool majority = doubtful.empty();
  const std::string who = names_of(majority ? wrong : doubtful);
  // The others have not changed their copies, but what they have committed since may come from wrong weights. Copies
  // that were made for another world may all be of a wrong one, and so outvote the right one: then steps to come would.
  const bool made_since = agreed_in_ != 0 && open_->world.generation != agreed_in_;
  const bool computed_with = majority && ((read && agreed_ < committed_) || made_since);
  Report(event::CopiesDiffer{.step = committed_ + 1,
                             .workers = who,
                             .chunk = differences.front().chunk,
                             .chunks = static_cast<int64_t>(differences.size()),
                             .majority = majority,
                             .computed_with = computed_with});
  if (!majority) return DistrustState(who);
  std::vector<std::string> names;
  for (const int rank : wrong) names.push_back(open_->world.members[static_cast<size_t>(rank)].id.name);
  const std::string cause = absl::StrCat("its copy of the state of step ", committed_ + 1, " has other bits");
  if (computed_with) GoBackToAgreed(absl::StrCat("steps may have been computed with a wrong copy of the state: ", who));
  RemoveContradicted(names, cause);
}

// A fault that does not pass lets no run get beyond the step at which copies are compared.
void Coordinator::DistrustState(const std::string& who) {
  const bool is_beyond = committed_ >= attempts_.distrusted_step;
  attempts_.distrusted_step = std::max(attempts_.distrusted_step, committed_ + 1);
  attempts_.distrusts = is_beyond ? 1 : attempts_.distrusts + 1;
  if (attempts_.distrusts >= kMaxDisputes) {
    Fail(absl::StrCat("two copies of the state of step ", committed_ + 1, " differ, in ", attempts_.distrusts,
                      " attempts, and neither has a majority (", who,
                      "): the memory of one of these hosts is faulty; replace it and start the run again. With "
                      "parallel.mirrors: 2 a majority decides"));
    return;
  }
  if (!GoBackToAgreed(absl::StrCat("two copies of the state differ, and neither has a majority: ", who))) {
    Fail(
        absl::StrCat("two copies of the state of step ", committed_ + 1, " differ (", who,
                     "), neither has a majority, and there is no checkpoint from before step ", agreed_ + 1,
                     ", about which all agreed: the memory of one of these hosts is faulty. With parallel.mirrors: 2 a "
                     "majority decides"));
  }
}

// To a checkpoint of a step about which all holders agreed, as a later one may have been written from a wrong copy, or
// after steps that were computed with it; else to step 0. False, and nothing changes, if neither may be.
bool Coordinator::GoBackToAgreed(const std::string& reason) {
  const std::vector<CheckpointChoice>& usable = checkpoints_.usable();
  const auto sound = std::find_if(usable.begin(), usable.end(),
                                  [&](const CheckpointChoice& choice) { return choice.step <= agreed_; });
  if (sound == usable.end() && !MayBeginAnew()) return false;
  const CheckpointChoice choice = sound == usable.end() ? CheckpointChoice() : *sound;
  CloseWorld(reason, 0);
  GoBackTo(choice, reason);
  return true;
}

void Coordinator::Handle(Connection from, const FailureMessage& failure) {
  const JoinedWorker* worker = MemberOf(from, failure.generation);
  if (worker == nullptr || open_->rank(worker->rank).failed) return;
  FailureMessage clipped = failure;
  clipped.cause = ClipText(clipped.cause, kMaxTextBytes);
  if (!open_->failed_since.has_value() || failure.fatal) {
    Report(event::StepFailed{.worker = worker->member.id.name,
                             .rank = worker->rank,
                             .host = worker->member.host,
                             .step = failure.step,
                             .phase = failure.phase,
                             .cause = clipped.cause,
                             .suspects = failure.suspects});
  }
  if (failure.bad_checkpoint && !state_.checkpoint().empty()) {
    DoubtCheckpoint(*worker, clipped.cause);
    Advance();
    return;
  }
  if (failure.fatal) {
    Fail(absl::StrCat(worker->member.id.name, ": ", clipped.cause));
    return;
  }
  open_->rank(worker->rank).failed = true;
  if (!open_->failed_since.has_value()) open_->failed_since = now_;
  blame_.Add(open_->world, worker->rank, clipped);
  damaged_data_.Add(worker->member.id.name, clipped);
  Advance();
}

void Coordinator::Handle(Connection from, const ValidationMessage& validation) {
  if (MemberOf(from, validation.generation) == nullptr) return;
  // Of a step that there is: a later one would stand before all true ones, and there is no end of them.
  if (validation.step < 1 || validation.step > committed_) return;
  const ValidationResult result = {validation.step, validation.loss};
  if (!validations_.Add(result)) return;
  checkpoints_.OnValidation(result);
  Report(event::Validation{result.step, result.loss});
  const std::optional<Validations::EarlyStop> stop = EarlyEnd();
  if (!stop.has_value() || open_->purpose == Purpose::kStop) return;
  Report(event::EarlyStop{.step = result.step,
                          .loss = result.loss,
                          .best_step = stop->lowest.step,
                          .best_loss = stop->lowest.loss,
                          .validations = stop->later,
                          .fall_step = stop->last_fall.step,
                          .fall_loss = stop->last_fall.loss});
  CloseWorld("the validation loss does not fall any more", 0);
  Advance();
}

void Coordinator::Handle(Connection from, const FinishedMessage& finished) {
  const JoinedWorker* worker = MemberOf(from, finished.generation);
  const bool ending = worker != nullptr && (open_->purpose == Purpose::kStop || committed_ >= options_.total_steps);
  if (!ending || open_->rank(worker->rank).finished) return;
  open_->rank(worker->rank).finished = true;
  ++open_->finished_count;
  EndIfFinished();
}

// Everybody is done, and so is what they have saved.
void Coordinator::EndIfFinished() {
  if (end_.over() || !open_.has_value() || open_->finished_count < open_->size()) return;
  if (!checkpoints_.pending().empty()) return;
  ReportRecovered();
  const RunEnd::Stop* stop = open_->purpose == Purpose::kStop && !EarlyEnd().has_value() ? end_.stop() : nullptr;
  const std::string what = EndReason(stop);
  if (MustSaveAtEnd()) return EndUnsaved(what);
  EndWait();
  if (stop != nullptr) {
    const CheckpointChoice* const newest = checkpoints_.newest();
    const char* const resumes = newest != nullptr && newest->step == committed_ ? ", and the same command resumes" : "";
    End<event::RunStopped>(128 + stop->signal, absl::StrCat(what, "; the model of that step is saved", resumes));
  } else {
    End<event::RunFinished>(0, what);
  }
}

void Coordinator::EndUnsaved(const std::string& what) {
  const CheckpointControl::Failure* failure = checkpoints_.failure();
  const std::string why = failure != nullptr ? failure->cause : "it was abandoned";
  const std::string retry = absl::StrCat("the last checkpoint could not be written: ", why);
  if (failure != nullptr && failure->no_room && AwaitRoom(retry)) {
    MakeRoomNow();
    if (!open_->unsaved_since.has_value()) open_->unsaved_since = now_;
    if (now_ - *open_->unsaved_since >= kRoomInterval) CloseWorld(retry, 0);
  } else if (++attempts_.unsaved_endings < kMaxEndings) {
    MakeRoomNow();
    CloseWorld(retry, 0);
  } else {
    Fail(absl::StrCat(what, "; the model is saved, but the checkpoint could not be written: ", why,
                      "; once that is mended, ", WhatStartsItAgain()));
  }
}

std::string Coordinator::WhatStartsItAgain() const {
  if (const CheckpointChoice* newest = checkpoints_.newest()) {
    return absl::StrCat("the same command resumes from step ", newest->step);
  }
  if (!options_.had_checkpoint && !checkpoints_.has_saved()) {
    return "the same command begins anew, as there is no other checkpoint";
  }
  return "--overwrite begins anew, as its other checkpoints are gone";
}

// Of what a run writes at its end, as of everything else: it is tried again until there is room. A stop does not wait:
// whoever asked for it may kill the run soon.
bool Coordinator::AwaitRoom(const std::string& cause) {
  if (!Ending() || end_.stop() != nullptr) return false;
  if (!room_wait_.has_value()) Report(event::Paused{cause});
  room_wait_ = {room_wait_.has_value() ? room_wait_->since : now_, cause};
  return true;
}

void Coordinator::EndWait() {
  if (!room_wait_.has_value()) return;
  Report(event::Resumed{std::chrono::duration<double>(now_ - room_wait_->since).count()});
  room_wait_.reset();
  blame_.Clear();  // nobody is to blame for worlds that lacked room
}

void Coordinator::Handle(Connection from, const StopRequestMessage& request) {
  const JoinedWorker* worker = roster_.FindByConnection(from);
  if (worker == nullptr) return;
  RequestStop(request.signal, worker->member.id.name);
  Advance();
}

void Coordinator::ReportRecovered() {
  if (open_->reported_recovered) return;
  open_->reported_recovered = true;
  const Instant first_step = open_->recovered() ? now_ - open_->all_recovered : Instant{0};
  Report(event::Recovered{.generation = open_->world.generation,
                          .size = open_->size(),
                          .reason = open_->reason,
                          .detect_seconds = open_->detect_seconds,
                          .abort_seconds = open_->abort_seconds,
                          .rendezvous_seconds = open_->rendezvous_seconds,
                          .transfer_seconds = open_->transfer_seconds,
                          .first_step_seconds = std::chrono::duration<double>(first_step).count(),
                          .bytes = open_->bytes});
}

}  // namespace holdfast
