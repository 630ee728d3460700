// From one world to the next.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/control/balance.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/state_source.h"
#include "framework/base/counted.h"
#include "framework/base/join_first.h"
#include "framework/base/signal_text.h"
#include "framework/parallel/reduction_plan.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

// So that several newcomers make one world. Of thousands some may come at any time, since they fail again and again.
constexpr milliseconds kSettle{100}, kLongestSettle{5000};
// Holders of state may still be with the coordinator before this one, which stands still: they notice within twice the
// keepalive of their connection (elastic/wire/control_client.h), and come then.
constexpr milliseconds kNoticeLoss{12'000};

std::string HoldersText(const std::vector<Member>& members) {
  constexpr size_t kMaxNamed = 32;
  return JoinFirst(members, kMaxNamed,
                   [](std::string* out, const Member& m) { absl::StrAppend(out, m.id.name, " on ", m.node); });
}

}  // namespace

// Does what has become due: called after whatever may have changed who is there, and on every tick.
void Coordinator::Advance() {
  if (end_.over()) return;
  StopIfNobodyStays();
  EndIfNothingIsHeld();
  if (end_.over()) return;
  if (open_.has_value()) RetryFailed();
  if (open_.has_value() || checkpoints_.verifying() || !MayDecide()) return;
  formation_.OnDecision(now_);
  ResolveClaims();
  if (!end_.over()) EndIfNothingIsHeld();
  if (end_.over() || state_.claimed()) return;
  const bool is_new = Decide();
  if (is_new && decided_->decision.verdict == WorldDecision::Verdict::kStateMissing && AdoptEntered()) Decide();
  const WorldDecision& decision = decided_->decision;
  formation_.SetWaitingFor(decision.detail);
  if (decision.verdict == WorldDecision::Verdict::kStateMissing) {
    AwaitState(decision);
    return;
  }
  formation_.OnStateFound();
  if (decision.verdict == WorldDecision::Verdict::kWait) {
    formation_.Wait();
    ReportTooFew(decision.detail);
    if (std::exchange(leavers_are_news_, false) || is_new) SayGoodbye();
  } else if (!MustWaitForOthers(decision.members.size())) {
    if (ChooseWhatIsAlike()) Decide();
    if (decided_->decision.verdict == WorldDecision::Verdict::kPublish) {
      Publish(decided_->decision);
    } else {
      data_digest_ = 0;  // too few are left: those who come next choose anew
      kernels_ = options_.digests.kernels;
    }
    decided_.reset();
  }
}

// Each decision looks at the whole source, and while there is no world thousands of events may change nothing of what
// it depends on, such as the ends of the streams of those that have gone. False if so: the last decision stands, and
// what follows from it has been done.
bool Coordinator::Decide() {
  WorldQuestion question = Question();
  if (decided_.has_value() && decided_->question == question) return false;
  WorldDecision decision = DecideWorld(options_.elastic, options_.parallel, question);
  decided_ = {std::move(question), std::move(decision)};
  return true;
}

void Coordinator::Persist() {
  PersistAction persist{generation_, branch_};
  for (const auto& [name, contradicted] : contradicted_) persist.contradicted[name] = contradicted.incarnation;
  persist.contradictions = history_.PastContradictions(TimeSince1970());
  actions_.emplace_back(std::move(persist));
}

// A stop has nothing to save while no worker has more than what lies in a checkpoint.
void Coordinator::EndIfNothingIsHeld() {
  const RunEnd::Stop* stop = end_.stop();
  if (stop == nullptr || state_.kind() == StateLocation::Kind::kWorld || state_.claimed()) return;
  const std::string& checkpoint = state_.checkpoint();
  End<event::RunStopped>(
      128 + stop->signal,
      absl::StrCat("stopped by ", SignalText(stop->signal), " at step ", committed_,
                   checkpoint.empty() ? ": there was nothing to save yet" : ": its state is in checkpoint ",
                   checkpoint));
}

// A burst of losses must not make a burst of worlds, each of which is told to everybody; nor is everything weighed anew
// for each of a thousand that join. What is put off is done with one of the next events, at the latest the next tick.
bool Coordinator::MayDecide() const {
  constexpr std::chrono::microseconds kRestPerWorker{100};
  const auto workers = static_cast<int64_t>(roster_.workers().size());
  const auto& last = formation_.last_world();
  if (last.has_value() && now_ - last->when < kRestPerWorker * last->size) return false;
  const Instant decided = formation_.last_decision();
  const bool is_rested = !(formation_.had_to_wait() || state_.claimed()) || decided == Instant{0} ||
                         now_ - decided >= kRestPerWorker * workers;
  // Whoever's stream has ended is about to be removed.
  return is_rested && roster_.cut().empty();
}

std::optional<Validations::EarlyStop> Coordinator::EarlyEnd() const {
  return committed_ < options_.total_steps ? validations_.EndAfter(committed_) : std::nullopt;
}

bool Coordinator::Ending() const {
  return end_.stop() != nullptr || committed_ >= options_.total_steps || EarlyEnd().has_value();
}

/// Of a run that is ending; `stop`: null if it does not end because of one.
std::string Coordinator::EndReason(const RunEnd::Stop* stop) const {
  if (stop != nullptr) return absl::StrCat("stopped by ", SignalText(stop->signal), " at step ", committed_);
  const std::optional<Validations::EarlyStop> early = EarlyEnd();
  if (!early.has_value() && committed_ == 1) return "the only step is done";
  if (!early.has_value()) return absl::StrCat("all ", committed_, " steps are done");
  const auto& [lowest, last_fall, later] = *early;
  std::string reason = absl::StrFormat(
      "ended early, at step %d of %d: the validation loss was lowest at step %d (%.4f), of which there is %s "
      "checkpoint",
      committed_, options_.total_steps, lowest.step, lowest.loss, checkpoints_.Has(lowest.step) ? "a" : "no");
  if (last_fall.step == lowest.step) return reason;
  absl::StrAppendFormat(&reason, "; since step %d (%.4f) it has not fallen by more than train.early_stop_min_delta",
                        last_fall.step, last_fall.loss);
  return reason;
}

WorldQuestion Coordinator::Question() const {
  const std::optional<Instant> first_join = formation_.first_join();
  WorldQuestion question{
      .candidates = {},
      .source = state_.source(),
      .first = state_.source().generation == 0 && !formation_.last_world().has_value(),
      .joined_long = first_join.has_value() && now_ - *first_join >= milliseconds(options_.elastic.join_timeout_ms),
      .used = options_.used_cells,
      .ending = Ending()};
  for (const auto& [name, worker] : roster_.workers()) {
    question.candidates.push_back({.member = worker.member,
                                   .holds_state = worker.holds_state,
                                   .was_member = worker.was_member,
                                   .quarantined = worker.left_out || history_.Quarantined(name, now_),
                                   .leaves = IsLeaving(worker.member.node),
                                   .arrival = worker.arrival});
  }
  return question;
}

bool Coordinator::MustWaitForOthers(size_t members) {
  const bool full = static_cast<int64_t>(members) >= options_.elastic.most_workers() ||
                    (!formation_.last_world().has_value() && static_cast<int64_t>(members) >= options_.elastic.workers);
  if (!formation_.had_to_wait() || full || Ending() || now_ - formation_.last_join() >= kSettle) return false;
  return now_ - formation_.OnSettling(now_) < kLongestSettle;
}

// After a restart: the workers' claims tell where the state lies.
void Coordinator::ResolveClaims() {
  if (!state_.claimed()) return;
  AskForWorlds();
  std::vector<ClaimOf> claims;
  for (const auto& [name, worker] : roster_.workers()) claims.push_back({worker.member.id, &worker.claim});
  const StateSource found = FindStateSource(claims, options_.recorded_step, options_.parallel, options_.used_cells);
  const milliseconds settle(options_.elastic.heartbeat_timeout_ms);
  const std::optional<Instant> first_claim = formation_.first_claim();
  const bool settled = found.complete || (first_claim.has_value() && now_ - *first_claim >= settle);
  if (!found.covered || !settled) {
    formation_.SetWaitingFor(absl::StrCat("waiting for the workers that hold the state of step ", committed_));
    const milliseconds limit = std::max(settle, milliseconds(options_.elastic.lost_state_timeout_ms));
    // Nobody at all may be about to come back; only a stop does not wait for that.
    std::optional<Instant> since = formation_.first_join();
    if (!since.has_value() && end_.stop() != nullptr) since = end_.stop()->since;
    if (AreTooFew()) {
      AwaitMore();
      ReportTooFew(formation_.waiting_for());
    }
    const Instant waited = since.has_value() ? now_ - formation_.WaitsSince(*since) : Instant{0};
    const CheckpointChoice* newest = checkpoints_.newest();
    const bool something_to_lose = committed_ > (newest == nullptr ? 0 : newest->step);
    const milliseconds wait_limit = something_to_lose ? std::min(std::max(settle, kNoticeLoss), limit) : settle;
    const bool all_new = !first_claim.has_value() && waited >= wait_limit &&
                         static_cast<int64_t>(roster_.workers().size()) >= options_.elastic.workers;
    const bool may_begin_anew = checkpoints_.enabled() && newest == nullptr && !options_.had_checkpoint;
    if (found.covered) return;
    if (all_new && may_begin_anew && end_.stop() == nullptr) {
      BeginAnew();
    } else if ((all_new && newest != nullptr) || waited >= limit) {
      RewindOrFail(found.world.members.members());
    }
    return;
  }
  AdoptSource(found);
}

void Coordinator::AdoptSource(const StateSource& found) {
  state_.SetWorld(found.world);
  std::vector<std::string> stale;
  for (auto& [name, worker] : roster_.workers()) {
    worker.holds_state = RankHeld(worker.member.id, worker.claim, state_.source(), committed_) >= 0;
    if (HasStaleClaim(worker.member.id, worker.claim)) stale.push_back(name);
    worker.claim = {};
  }
  for (const std::string& name : stale) {
    Refuse(roster_.Find(name)->connection, absl::StrCat("the state it holds is not that of step ", committed_), true);
    roster_.Remove(name);
  }
  formation_.SetReason("the coordinator was started again");
}

// Holders of the source may be lost just after others got what they had, before the next step made that the source.
bool Coordinator::AdoptEntered() {
  const World& entered = state_.entered();
  if (entered.generation == 0) return false;
  const auto has = [&](const JoinedWorker& worker) { return worker.entered == entered.generation; };
  std::vector<bool> alive(entered.members.size(), false);
  for (const auto& [name, worker] : roster_.workers()) {
    const int rank = has(worker) ? entered.RankOf(worker.member.id) : -1;
    if (rank >= 0) alive[static_cast<size_t>(rank)] = true;
  }
  if (!HoldersOfLostState(entered, alive, options_.parallel, options_.used_cells).empty()) return false;
  for (auto& [name, worker] : roster_.workers()) worker.holds_state = has(worker);
  state_.AdoptEntered();
  return true;
}

void Coordinator::AwaitState(const WorldDecision& decision) {
  if (formation_.OnStateMissing(now_)) {
    Report(event::StateMissing{{committed_, HoldersText(decision.missing)}});
  }
  if (AreTooFew()) {
    AwaitMore();
    ReportTooFew(decision.detail);
    return;
  }
  const milliseconds limit(options_.elastic.lost_state_timeout_ms);
  if (AreLostForGood(decision.missing) || now_ - formation_.WaitsSince(*formation_.missing_since()) >= limit) {
    RewindOrFail(decision.missing);
  }
}

// There are some, and none of them comes back with its state.
bool Coordinator::AreContradicted(const std::vector<Member>& holders) const {
  return !holders.empty() &&
         std::all_of(holders.begin(), holders.end(), [&](const Member& holder) { return IsContradicted(holder.id); });
}

// There are some, and none of them comes back with its state either: an agent has said that its process has ended.
bool Coordinator::AreLostForGood(const std::vector<Member>& holders) const {
  // Others may come back with what these held, and a checkpoint may be about to exist.
  if (state_.entered().generation != 0 || !checkpoints_.pending().empty()) return AreContradicted(holders);
  return !holders.empty() && std::all_of(holders.begin(), holders.end(), [&](const Member& holder) {
    return IsContradicted(holder.id) || state_.HasEnded(holder.id);
  });
}

int64_t Coordinator::NumNotKeptOut() const {
  return std::count_if(roster_.workers().begin(), roster_.workers().end(),
                       [](const auto& entry) { return !entry.second.kept_out; });
}

// Nobody is there to go on without the state that is missing, so nothing is gained by giving it up; and it may be this
// coordinator that is cut off from all who have it. Only a stop does not wait for that.
bool Coordinator::AreTooFew() const {
  return end_.stop() == nullptr && NumNotKeptOut() < std::max<int64_t>(1, options_.elastic.min_workers);
}

// The time in which lost state may come back counts from the moment when there are enough.
void Coordinator::AwaitMore() {
  formation_.OnFew(now_);
  formation_.SetWaitingFor(absl::StrCat(NumNotKeptOut(), " of at least ",
                                        Counted(std::max<int64_t>(1, options_.elastic.min_workers), "worker"),
                                        " connected; ", formation_.waiting_for()));
}

void Coordinator::RewindOrFail(const std::vector<Member>& holders) {
  const std::string names = HoldersText(holders);
  const CheckpointChoice* newest = checkpoints_.newest();
  const bool loses_nothing = newest != nullptr && newest->step == committed_;
  if (const RunEnd::Stop* stop = end_.stop(); stop != nullptr && !loses_nothing) {
    Report(event::StateLost{{committed_, names}});
    Fail(absl::StrCat("stopped by ", SignalText(stop->signal), ", but no worker reconnected with the state of step ",
                      committed_, ", so it could not be saved: the same command resumes from ",
                      newest == nullptr ? "the beginning" : newest->name));
    return;
  }
  const char* const what = AreContradicted(holders) ? "most workers had other bits than all holders of a part: "
                                                    : "all holders of a part were lost: ";
  if (Rewind(names.empty() ? "no worker holds the state" : absl::StrCat(what, names))) return;
  Report(event::StateLost{{committed_, names}});
  const bool gone = options_.had_checkpoint || checkpoints_.has_saved();
  Fail(absl::StrCat("the state of step ", committed_, " is lost: all holders of a part of it were lost (",
                    names.empty() ? "none reconnected" : names, "), and there is no checkpoint",
                    gone ? " any more: put one back, or begin anew with --overwrite" : "",
                    ". More parallel.mirrors, and mirrors on other nodes, survive more losses at once; "
                    "checkpoint.every_steps says how often to write one"));
}

std::vector<int64_t> Coordinator::FirstMicrobatches(const MemberList& members) const {
  std::vector<int64_t> even = EvenMicrobatches(options_.microbatches, static_cast<int>(members.size()));
  if (!options_.elastic.rebalance) return even;
  std::vector<double> seconds;
  seconds.reserve(members.size());
  for (const Member& member : members) seconds.push_back(stragglers_.SecondsOf(member.id.name));
  return Rebalance(even, seconds);
}

void Coordinator::Publish(const WorldDecision& decision) {
  OpenWorld open;
  open.world = {++generation_, decision.members};
  open.world.placement = seats_.PlacementFor(open.world, state_.source(), options_.parallel);
  open.purpose = end_.stop() != nullptr || EarlyEnd().has_value() ? Purpose::kStop : Purpose::kTrain;
  open.microbatches = FirstMicrobatches(open.world.members);
  open.ranks.resize(decision.members.size());
  open.blobs.resize(decision.members.size());
  open.ballot = Ballot(committed_ + 1, open.size());
  open.reason = formation_.reason().empty() ? "enough workers have joined" : formation_.reason();
  open.published = open.last_commit = now_;
  open.detect_seconds = formation_.detect_seconds();
  Persist();
  const bool save_at_end = MustSaveAtEnd() && !checkpoints_.pending().Has(committed_);
  Report(event::WorldPublished{generation_, open.size(), committed_, open.reason});
  for (int rank = 0; rank < open.size(); ++rank) {
    JoinedWorker& worker = *roster_.Find(open.world.members[static_cast<size_t>(rank)].id.name);
    worker.rank = rank;
    if (!worker.was_member) worker.admitted = now_;
    if (!worker.has_beaten) worker.last_message = now_;
    worker.progressed = now_;
    worker.was_member = true;
  }
  open_ = std::move(open);
  SendToMembers(WorldMessage{open_->world, state_.source(), committed_, open_->purpose, open_->microbatches,
                             state_.checkpoint(), save_at_end});
  state_.ForgetEntered();  // who is told of another source gives it up
  if (save_at_end) checkpoints_.Begin(now_, committed_, open_->world, /*at_end=*/true, LossNow());
  if (!formation_.last_world().has_value()) {
    const std::string data = data_digest_ == 0 ? "" : absl::StrCat(absl::Hex(data_digest_, absl::kZeroPad16));
    Report(event::RunStarted{open_->size(), committed_, options_.total_steps, options_.data_tokens, data});
  }
  const bool newcomers = std::any_of(roster_.workers().begin(), roster_.workers().end(),
                                     [](const auto& entry) { return entry.second.rank < 0; });
  formation_.OnPublished(now_, open_->size(), newcomers);
}

void Coordinator::CloseWorld(const std::string& reason, double detect_seconds) {
  formation_.AddReason(reason, detect_seconds);
  if (!open_.has_value()) return;
  checkpoints_.pending().RemoveEndOf(open_->world.generation);
  for (auto& [name, worker] : roster_.workers()) {
    worker.was_member = worker.rank >= 0;
    worker.rank = -1;
  }
  open_.reset();
}

bool Coordinator::WantsNewcomers() const {
  const std::optional<Instant> newcomer = formation_.first_newcomer();
  if (Ending() || !newcomer.has_value() || now_ - *newcomer < kSettle) return false;
  // Where all are to leave, those that wait for a place take over.
  if (open_->size() >= options_.elastic.most_workers() && !AllMembersLeave()) return false;
  return std::any_of(roster_.workers().begin(), roster_.workers().end(), [&](const auto& entry) {
    return entry.second.rank < 0 && !entry.second.left_out && !history_.Quarantined(entry.first, now_) &&
           !IsLeaving(entry.second.member.node);
  });
}

}  // namespace holdfast
