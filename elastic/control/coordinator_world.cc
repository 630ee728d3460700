// From one world to the next.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elastic/control/balance.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/state_source.h"
#include "framework/parallel/reduction_plan.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSettle{100};  // so that several newcomers make one world
// Holders of state may still be with the coordinator before this one, which stands still: they notice within twice the
// keepalive of their connection (elastic/wire/control_client.h), and come then.
constexpr milliseconds kNoticeLoss{12'000};

std::string HoldersText(const std::vector<Member>& members) {
  return absl::StrJoin(members, ", ",
                       [](std::string* out, const Member& m) { absl::StrAppend(out, m.id.name, " on ", m.node); });
}

}  // namespace

// Does what has become due: called after whatever may have changed who is there, and on every tick.
void Coordinator::Advance() {
  if (ended_) return;
  if (stop_signal_ != 0 && source_.generation == 0 && !claims_open_) {
    End<event::RunStopped>(128 + stop_signal_, absl::StrCat("stopped by signal ", stop_signal_, " at step ", committed_,
                                                            ": there was nothing to save yet"));
    return;
  }
  if (open_.has_value()) RetryFailed();
  if (open_.has_value() || doubt_.has_value() || !MayDecide()) return;
  last_decision_ = now_;
  ResolveClaims();
  if (ended_ || claims_open_) return;
  WorldDecision decision = DecideWorld(options_.elastic, options_.parallel, Question());
  if (decision.verdict == WorldDecision::Verdict::kStateMissing && AdoptEntered()) {
    decision = DecideWorld(options_.elastic, options_.parallel, Question());
  }
  waiting_for_ = decision.detail;
  if (decision.verdict == WorldDecision::Verdict::kStateMissing) {
    AwaitState(decision);
    return;
  }
  missing_since_.reset();
  if (decision.verdict == WorldDecision::Verdict::kWait) {
    had_to_wait_ = true;
    ReportTooFew(decision.detail);
    SayGoodbye();
  } else if (!MustWaitForOthers(decision.members.size())) {
    if (ChooseData()) decision = DecideWorld(options_.elastic, options_.parallel, Question());
    if (decision.verdict == WorldDecision::Verdict::kPublish) Publish(decision);
  }
}

// A burst of losses must not make a burst of worlds, each of which is told to everybody; nor is everything weighed anew
// for each of a thousand that join. What is put off is done with one of the next events, at the latest the next tick.
bool Coordinator::MayDecide() const {
  constexpr std::chrono::microseconds kRestPerWorker{100};
  const auto workers = static_cast<int64_t>(roster_.workers().size());
  if (had_world_ && now_ - last_publish_ < kRestPerWorker * last_size_) return false;
  return !(had_to_wait_ || claims_open_) || last_decision_ == Instant{0} ||
         now_ - last_decision_ >= kRestPerWorker * workers;
}

bool Coordinator::Ending() const { return stop_signal_ != 0 || committed_ == options_.total_steps; }

WorldQuestion Coordinator::Question() const {
  WorldQuestion question{
      .candidates = {},
      .source = source_,
      .first = source_.generation == 0 && !had_world_,
      .joined_long = first_join_.has_value() && now_ - *first_join_ >= milliseconds(options_.elastic.join_timeout_ms),
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

bool Coordinator::MustWaitForOthers(size_t members) const {
  const bool full = static_cast<int64_t>(members) >= options_.elastic.most_workers() ||
                    (!had_world_ && static_cast<int64_t>(members) >= options_.elastic.workers);
  return had_to_wait_ && !full && !Ending() && now_ - last_join_ < kSettle;
}

// After a restart: the workers' claims tell where the state lies.
void Coordinator::ResolveClaims() {
  if (!claims_open_) return;
  AskForWorlds();
  std::vector<ClaimOf> claims;
  for (const auto& [name, worker] : roster_.workers()) claims.push_back({worker.member.id, &worker.claim});
  const StateSource found = FindStateSource(claims, options_.recorded_step, options_.parallel, options_.used_cells);
  const milliseconds settle(options_.elastic.heartbeat_timeout_ms);
  const bool settled = found.complete || (first_claim_.has_value() && now_ - *first_claim_ >= settle);
  if (!found.covered || !settled) {
    waiting_for_ = absl::StrCat("waiting for the workers that hold the state of step ", committed_);
    const milliseconds limit = std::max(settle, milliseconds(options_.elastic.lost_state_timeout_ms));
    // Nobody at all may be about to come back; only a stop does not wait for that.
    const std::optional<Instant> since = first_join_.has_value() ? first_join_ : stop_asked_;
    const Instant waited = since.has_value() ? now_ - std::max(*since, last_holder_) : Instant{0};
    const bool something_to_lose = committed_ > (checkpoints_.empty() ? 0 : checkpoints_.front().step);
    const milliseconds patience = something_to_lose ? std::min(std::max(settle, kNoticeLoss), limit) : settle;
    const bool all_new = !first_claim_.has_value() && waited >= patience &&
                         static_cast<int64_t>(roster_.workers().size()) >= options_.elastic.workers;
    const bool may_begin_anew = schedule_.enabled() && checkpoints_.empty() && !options_.had_checkpoint;
    if (found.covered) return;
    if (all_new && may_begin_anew && stop_signal_ == 0) {
      BeginAnew();
    } else if ((all_new && !checkpoints_.empty()) || waited >= limit) {
      RewindOrFail(found.world.members.members());
    }
    return;
  }
  AdoptSource(found);
}

void Coordinator::AdoptSource(const StateSource& found) {
  claims_open_ = false;
  known_worlds_.clear();
  asked_for_worlds_.clear();
  source_ = found.world;
  std::vector<std::string> stale;
  for (auto& [name, worker] : roster_.workers()) {
    worker.holds_state = RankHeld(worker.member.id, worker.claim, source_, committed_) >= 0;
    if (HasStaleClaim(worker.member.id, worker.claim)) stale.push_back(name);
    worker.claim = {};
  }
  for (const std::string& name : stale) {
    Refuse(roster_.Find(name)->connection, absl::StrCat("the state it holds is not that of step ", committed_), true);
    roster_.Remove(name);
  }
  reason_ = "the coordinator was started again";
}

// Holders of the source may be lost just after others got what they had, before the next step made that the source.
bool Coordinator::AdoptEntered() {
  if (entered_.generation == 0) return false;
  const auto has = [&](const JoinedWorker& worker) { return worker.entered == entered_.generation; };
  std::vector<bool> alive(entered_.members.size(), false);
  for (const auto& [name, worker] : roster_.workers()) {
    const int rank = has(worker) ? entered_.RankOf(worker.member.id) : -1;
    if (rank >= 0) alive[static_cast<size_t>(rank)] = true;
  }
  if (!HoldersOfLostState(entered_, alive, options_.parallel, options_.used_cells).empty()) return false;
  source_ = std::exchange(entered_, {});
  load_.clear();
  for (auto& [name, worker] : roster_.workers()) worker.holds_state = worker.entered == source_.generation;
  return true;
}

void Coordinator::AwaitState(const WorldDecision& decision) {
  had_to_wait_ = true;
  if (!missing_since_.has_value()) {
    missing_since_ = now_;
    Report(event::StateMissing{{committed_, HoldersText(decision.missing)}});
  }
  if (now_ - std::max(*missing_since_, last_holder_) >= milliseconds(options_.elastic.lost_state_timeout_ms)) {
    RewindOrFail(decision.missing);
  }
}

void Coordinator::RewindOrFail(const std::vector<Member>& holders) {
  const std::string names = HoldersText(holders);
  if (stop_signal_ != 0) {
    Report(event::StateLost{{committed_, names}});
    Fail(absl::StrCat("stopped by signal ", stop_signal_, ", but nobody came back with the state of step ", committed_,
                      ", so it could not be saved: the same command goes on from ",
                      checkpoints_.empty() ? "the beginning" : checkpoints_.front().name));
    return;
  }
  if (Rewind(names.empty() ? "nobody holds the state any more"
                           : absl::StrCat("all holders of a part are gone: ", names))) {
    return;
  }
  Report(event::StateLost{{committed_, names}});
  Fail(absl::StrCat(
      "the state of step ", committed_, " is lost: all holders of a part of it are gone (",
      names.empty() ? "nobody came back with any" : names,
      "), and there is no checkpoint. More parallel.mirrors, and mirrors on other nodes, survive more losses "
      "at once; checkpoint.every_steps says how often to write one"));
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
  open.world.placement = seats_.PlacementFor(open.world, source_, options_.parallel);
  open.purpose = stop_signal_ != 0 ? Purpose::kStop : Purpose::kTrain;
  open.microbatches = FirstMicrobatches(open.world.members);
  open.ranks.resize(decision.members.size());
  open.blobs.resize(decision.members.size());
  open.ballot = Ballot(committed_ + 1, open.size());
  open.reason = reason_.empty() ? "enough workers have joined" : reason_;
  open.published = open.last_commit = now_;
  open.detect_seconds = detect_seconds_;
  actions_.emplace_back(PersistAction{generation_, branch_});
  const bool save_at_end = MustSaveAtEnd();
  Report(event::WorldPublished{generation_, open.size(), committed_, open.reason});
  for (int rank = 0; rank < open.size(); ++rank) {
    JoinedWorker& worker = *roster_.Find(open.world.members[static_cast<size_t>(rank)].id.name);
    worker.rank = rank;
    if (!worker.was_member) worker.admitted = now_;
    if (!worker.has_beaten) worker.heard = now_;
    worker.progressed = now_;
    worker.was_member = true;
  }
  open_ = std::move(open);
  SendToMembers(
      WorldMessage{open_->world, source_, committed_, open_->purpose, open_->microbatches, load_, save_at_end});
  entered_ = {};  // who is told of another source gives it up
  if (save_at_end) BeginSave();
  last_publish_ = now_;
  last_size_ = open_->size();
  if (!published_) {
    Report(event::RunStarted{last_size_, committed_, options_.total_steps});
  }
  had_world_ = published_ = true;
  had_to_wait_ = false;
  reason_.clear();
  detect_seconds_ = 0;
  waiting_for_.clear();
  first_newcomer_.reset();
  too_few_since_.reset();
  reported_too_few_ = false;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0 && !first_newcomer_.has_value()) first_newcomer_ = now_;
  }
}

void Coordinator::CloseWorld(const std::string& reason, double detect_seconds) {
  constexpr size_t kMaxBytes = 1000;
  if (reason_.size() < kMaxBytes) absl::StrAppend(&reason_, reason_.empty() ? "" : "; ", reason);
  detect_seconds_ = std::max(detect_seconds_, detect_seconds);
  if (!open_.has_value()) return;
  saves_.RemoveEndOf(open_->world.generation);
  for (auto& [name, worker] : roster_.workers()) {
    worker.was_member = worker.rank >= 0;
    worker.rank = -1;
  }
  open_.reset();
}

bool Coordinator::WantsNewcomers() const {
  if (Ending() || !first_newcomer_.has_value() || now_ - *first_newcomer_ < kSettle) return false;
  if (open_->size() >= options_.elastic.most_workers()) return false;
  return std::any_of(roster_.workers().begin(), roster_.workers().end(), [&](const auto& entry) {
    return entry.second.rank < 0 && !entry.second.left_out && !history_.Quarantined(entry.first, now_) &&
           !IsLeaving(entry.second.member.node);
  });
}

}  // namespace holdfast
