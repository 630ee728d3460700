// What nobody reports: silence, standing still, and failures whose cause has to be guessed.

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "elastic/control/coordinator.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMaxFailedWorlds = 100;  // on end, without a step done: what it takes is not to be had by trying

constexpr int kMaxFailedEndings = 5;  // on end, which nobody else is to blame for

// On end, that had too little memory for a state that lies nowhere or in a checkpoint: nothing is lost by giving up.
constexpr int kMaxStarvedWorlds = 5;

// On end, that failed at one step by one damage of the data. They take some twenty seconds.
constexpr int64_t kMaxDamagedWorlds = 10;

}  // namespace

// In these phases a member waits for others, so it is not the first to be blamed.
bool Coordinator::WaitsForOthers(Phase phase) {
  return phase == Phase::kRendezvous || phase == Phase::kTransfer || phase == Phase::kReduce || phase == Phase::kVote ||
         phase == Phase::kIdle;
}

// That a stream has ended does not say why. Its agent does: that the process was killed, or its last words. Those of
// thousands may end at once, and their agents' after them: looked at are those whose time is up, and those of `node`, a
// stream of which has just ended, if it has no agent any more.
void Coordinator::RemoveCut(const std::string* node) {
  constexpr milliseconds kPatience{500};  // with an agent that says nothing
  std::set<std::string> names;
  for (const auto& [since, name] : roster_.cut()) {
    if (!end_.over() && now_ - since < kPatience) break;
    names.insert(name);
  }
  if (node != nullptr && roster_.AgentOf(*node) == nullptr) names.merge(roster_.CutOf(*node));
  for (const std::string& name : names) {
    const std::string cause = roster_.Find(name)->cut_cause;
    Remove(name, cause, Leave::kGone);
  }
}

void Coordinator::RemoveSilent() {
  const milliseconds limit(options_.elastic.heartbeat_timeout_ms);
  std::vector<std::string> silent;
  for (const auto& [name, worker] : roster_.workers()) {
    const bool is_awaited = worker.rank >= 0 || worker.has_beaten || !IsEmpty(worker.claim);
    if (is_awaited && now_ - worker.last_message > limit) silent.push_back(name);
  }
  // Closed, not refused: if it was the line that was silent, the worker comes back and claims its state.
  for (const std::string& name : silent)
    RemoveHung(name, roster_.Find(name)->last_message, "no heartbeat", Leave::kClosed);
}

void Coordinator::RemoveHung(const std::string& name, Instant since, const std::string& why, Leave how) {
  const JoinedWorker& worker = *roster_.Find(name);
  const double seconds = std::chrono::duration<double>(now_ - since).count();
  Report(event::WorkerHung{.worker = name,
                           .rank = worker.rank,
                           .node = worker.member.node,
                           .host = worker.member.host,
                           .phase = worker.beat.phase,
                           .step = worker.beat.step,
                           .seconds = seconds,
                           .reason = why});
  Remove(name, absl::StrFormat("hung: %s for %.1f s in phase %s", why, seconds, PhaseName(worker.beat.phase)), how);
}

// Of the members that the others wait for, the one that is furthest behind and has stood still for longest.
void Coordinator::RemoveStuck() {
  if (!open_.has_value() || open_->failed_since.has_value()) return;
  const milliseconds limit(options_.elastic.progress_timeout_ms);
  const JoinedWorker* stuck = nullptr;
  const auto badness = [](const JoinedWorker& w) {
    return std::tuple(WaitsForOthers(w.beat.phase), w.beat.step, w.progressed);
  };
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0 || now_ - worker.progressed <= limit) continue;
    const OpenWorld::Rank& rank = open_->rank(worker.rank);
    const bool done = !open_->recovered() ? rank.recovered
                      : Ending()          ? rank.finished
                                          : open_->ballot.HasVoted(worker.rank);
    if (!done && (stuck == nullptr || badness(worker) < badness(*stuck))) stuck = &worker;
  }
  if (stuck == nullptr) return;
  const WorkerId id = stuck->member.id;
  // Who is refused gives its state up.
  const bool can_spare = CanSpare([&](const Member& member) { return member.id == id; });
  const std::string name = id.name, host = stuck->member.host;
  const bool was_ending = Ending();
  RemoveHung(name, stuck->progressed, "heartbeats without progress", can_spare ? Leave::kRefused : Leave::kClosed);
  // It comes back with what nobody else holds, and would hang again.
  if (!can_spare && was_ending && ++attempts_.failed_endings >= kMaxFailedEndings) {
    Fail(absl::StrCat(EndReason(end_.stop()), ", but its state could not be saved: ", name, " on ", host,
                      " stands still whenever it is to"));
  }
}

void Coordinator::ReportNoProgress() {
  const milliseconds limit(options_.elastic.progress_timeout_ms);
  if (!open_.has_value() || open_->reported_no_progress || now_ - open_->last_commit <= limit) return;
  open_->reported_no_progress = true;
  Report(event::NoProgress{.generation = open_->world.generation,
                           .step = committed_ + 1,
                           .seconds = std::chrono::duration<double>(now_ - open_->last_commit).count()});
}

namespace {

// The others waited for addresses until they failed: whoever has not said its own keeps them from working, though it
// sends heartbeats.
void SuspectAbsent(const OpenWorld& world, bool waited_long, Blame* blame) {
  FailureMessage absent;
  absent.secondhand = true;
  int reporter = -1;
  for (int rank = 0; rank < world.size(); ++rank) {
    const OpenWorld::Rank& state = world.ranks[static_cast<size_t>(rank)];
    if (state.failed) reporter = rank;
    if (!state.has_blob && !state.failed) absent.suspects.push_back(rank);
  }
  if (waited_long && reporter >= 0) blame->Add(world.world, reporter, absent);
}

}  // namespace

// A collective failed, and so far nobody was seen to be lost. Once all others have shown that they live, or have had
// the time to, the world is made anew; the limit grows from world to world.
void Coordinator::RetryFailed() {
  if (!open_->failed_since.has_value()) return;
  const milliseconds limit(options_.elastic.heartbeat_timeout_ms);
  const int64_t doublings = std::min<int64_t>(blame_.failed_worlds(), 10);
  const Instant wait =
      room_wait_.has_value()
          ? kRoomInterval
          : std::min<Instant>(milliseconds(options_.elastic.heartbeat_interval_ms) * (int64_t{1} << doublings), limit);
  const Instant since = *open_->failed_since;
  if (now_ - since < wait) return;
  // Who has shown it has for good: with each of thousands of reports the search resumes where it ended.
  const auto unheard =
      std::find_if(roster_.workers().lower_bound(open_->unheard), roster_.workers().end(), [&](const auto& entry) {
        const JoinedWorker& worker = entry.second;
        return worker.rank >= 0 && !open_->rank(worker.rank).failed && worker.last_message <= since;
      });
  const bool all_live = unheard == roster_.workers().end();
  if (!all_live) open_->unheard = unheard->first;
  if (!all_live && now_ - since < limit) return;
  // What a worker lacks looks like cut links to those that try to reach it.
  if (!open_->links_are_known && !blame_.IsAtHome() && TriesLinks()) return;
  SuspectAbsent(*open_, since - open_->published >= milliseconds(options_.elastic.collective_timeout_ms), &blame_);
  const Blame::Verdict verdict = blame_.Conclude(open_->world);
  damaged_data_.Conclude();
  const bool awaits_room = verdict.no_room && verdict.at_home && AwaitRoom(verdict.cause);
  if (!awaits_room && blame_.failed_worlds() >= kMaxFailedWorlds) {
    Fail(absl::StrCat(blame_.failed_worlds(), " consecutive worlds failed: ", verdict.cause));
    return;
  }
  const bool holds_state = state_.kind() == StateLocation::Kind::kWorld || state_.claimed();
  attempts_.starved_worlds = verdict.out_of_memory && !holds_state ? attempts_.starved_worlds + 1 : 0;
  const auto is_culprit = [&](const Member& member) { return member.id == *verdict.culprit; };
  const bool is_damaged = damaged_data_.worlds() >= kMaxDamagedWorlds;
  const bool another_may_do = !(is_damaged && MembersKnowTheDamage());
  if (another_may_do && verdict.culprit.has_value() && roster_.Find(verdict.culprit->name) != nullptr &&
      CanSpare(is_culprit)) {
    attempts_.failed_endings = 0;
    const char* what =
        verdict.at_home ? "only it failed, again and again: " : "its peers failed to communicate with it: ";
    Remove(verdict.culprit->name, absl::StrCat(what, verdict.cause), Leave::kRefused);
  } else if (is_damaged) {
    Fail(absl::StrCat("the data of step ", damaged_data_.step(), " are damaged, in ", damaged_data_.worlds(),
                      " attempts: ", verdict.cause));
  } else if (attempts_.starved_worlds >= kMaxStarvedWorlds) {
    Fail(absl::StrCat("there is too little memory, in ", kMaxStarvedWorlds, " attempts: ", verdict.cause));
  } else if (Ending() && verdict.at_home && !awaits_room && ++attempts_.failed_endings >= kMaxFailedEndings) {
    const CheckpointChoice* newest = checkpoints_.newest();
    const bool has_checkpoint = newest != nullptr && newest->step == committed_;
    Fail(absl::StrCat(EndReason(end_.stop()),
                      has_checkpoint ? " and saved in a checkpoint, but the model could not be written: "
                                     : ", but its state could not be saved: ",
                      verdict.cause));
  } else {
    CloseWorld(absl::StrCat("retrying: ", verdict.cause), 0);
  }
}

// Hosts may have copies of the files, of which one is whole.
bool Coordinator::MembersKnowTheDamage() const {
  return std::all_of(open_->world.members.begin(), open_->world.members.end(),
                     [&](const Member& member) { return damaged_data_.IsKnownTo(member.id.name); });
}

// Who is silent, whatever its last phase was, then who does not only wait for others: a frozen member stays in the
// phase in which it was frozen, and those that wait for its bytes may do so while they compute.
std::string Coordinator::AwaitedMembers() const {
  constexpr int kMissedHeartbeats = 3;
  const Instant limit = milliseconds(options_.elastic.heartbeat_interval_ms) * kMissedHeartbeats;
  std::vector<std::string> silent, behind;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0) continue;
    const std::string place = absl::StrCat(name, " on ", worker.member.host);
    const Instant silence = now_ - worker.last_message;
    if (silence > limit) {
      silent.push_back(
          absl::StrFormat("%s without a heartbeat for %.1f s", place, std::chrono::duration<double>(silence).count()));
    } else if (!WaitsForOthers(worker.beat.phase)) {
      behind.push_back(absl::StrCat(place, " in ", PhaseName(worker.beat.phase)));
    }
  }
  std::vector<std::string> named = std::move(silent);
  named.insert(named.end(), behind.begin(), behind.end());
  if (named.empty()) return "bytes from each other";
  constexpr size_t kMaxNamed = 4;
  const bool more = named.size() > kMaxNamed;
  if (more) named.resize(kMaxNamed);
  return absl::StrCat(absl::StrJoin(named, ", "), more ? " and others" : "");
}

// A step that takes far longer than its like, while nobody fails: a link that loses packets, a disk that is dying.
void Coordinator::WatchPace() {
  if (!open_.has_value()) return;
  for (const auto& [name, worker] : roster_.workers()) {
    open_->validates = open_->validates || (worker.rank >= 0 && worker.beat.phase == Phase::kValidation);
  }
  if (Ending() || open_->commits == 0 || open_->validates || open_->failed_since.has_value()) return;
  if (pace_.slow()) return LookForSlowLink();
  const double seconds = std::chrono::duration<double>(now_ - open_->last_commit).count();
  if (!pace_.IsFarBeyond(seconds)) return;
  pace_.BeginSlow();
  Report(event::StepSlow{.step = committed_ + 1,
                         .seconds = seconds,
                         .usual_seconds = pace_.usual_seconds(),
                         .waiting_for = AwaitedMembers()});
  LookForSlowLink();
}

void Coordinator::LookForSlowLink() {
  if (!links_.probing() && pace_.TakeLook(now_)) BeginProbe(LinkWatch::Purpose::kPace);
}

// Of a commit that follows another in the same world.
void Coordinator::MeasurePace() {
  const double seconds = std::chrono::duration<double>(now_ - open_->last_commit).count();
  if (std::exchange(open_->validates, false) || open_->commits++ == 0) return;
  if (pace_.EndSlow(seconds)) Report(event::StepSlowResolved{committed_, seconds, pace_.usual_seconds()});
  pace_.Add(seconds);
}

// The run stands still, and that may be for long.
void Coordinator::ReportTooFew(const std::string& detail) {
  const milliseconds limit(formation_.last_world().has_value() ? options_.elastic.heartbeat_timeout_ms
                                                               : options_.elastic.join_timeout_ms);
  const std::optional<Instant> since = formation_.OnTooFew(now_, limit);
  if (!since.has_value()) return;
  Report(event::TooFewWorkers{committed_, detail, std::chrono::duration<double>(*since).count()});
}

}  // namespace holdfast
