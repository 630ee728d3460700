#include "elastic/control/worker_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/signal_text.h"

namespace holdfast {

WorkerSession::WorkerSession(Member member, const RunDigests& digests, int64_t total_steps, uint64_t run)
    : member_(std::move(member)), digests_(digests), total_steps_(total_steps), run_(run) {}

std::vector<SessionAction> WorkerSession::OnEvent(const SessionEvent& event) {
  if (!exited_) std::visit([this](const auto& e) { On(e); }, event);
  std::vector<SessionAction> actions;
  actions.swap(actions_);
  return actions;
}

void WorkerSession::On(const SessionConnected&) {
  connected_ = true;
  in_world_ = false;
  Join();
  PassOnStop();
}

void WorkerSession::On(const SessionStopAsked& asked) {
  stop_signal_ = asked.signal;
  is_alone_ = asked.is_alone;
  PassOnStop();
  EndIfAlone();
}

// Over every new connection: whoever is there now may not have heard of it.
void WorkerSession::PassOnStop() {
  if (connected_ && stop_signal_ != 0) actions_.emplace_back(SendToCoordinator{StopRequestMessage{stop_signal_}});
}

void WorkerSession::EndIfAlone() {
  if (!is_alone_ || connected_ || was_taken_in()) return;
  Exit({.exit_code = 128 + stop_signal_,
        .reason = absl::StrCat("stopped by ", SignalText(stop_signal_), ": no coordinator has taken this worker in")});
}

void WorkerSession::On(const SessionDisconnected&) {
  connected_ = in_world_ = false;
  EndIfAlone();
}

// A coordinator that is paused takes nobody in, and will.
void WorkerSession::On(const SessionDeserted&) {
  if (connected_) return;
  constexpr int kRetryExit = 75;  // EX_TEMPFAIL
  const bool stopped = stop_signal_ != 0;
  const std::string reason = absl::StrCat(
      stopped ? absl::StrCat("stopped by ", SignalText(stop_signal_), ": its coordinator has not come back for ")
              : "this worker has had no coordinator for ",
      "elastic.coordinator_timeout_ms");
  Abort(reason);
  Exit({.exit_code = stopped ? 128 + stop_signal_ : kRetryExit, .reason = reason});
}

void WorkerSession::On(const SessionMessage& event) {
  std::visit([this](const auto& message) { Handle(message); }, event.message);
}

// --- the coordinator

void WorkerSession::Handle(const WorldMessage& message) {
  if (message.world.generation <= generation_ || message.world.RankOf(member_.id) < 0) return;
  Abort(absl::StrCat("generation ", message.world.generation, " begins"));
  const bool source_is_entered = entered_ != 0 && entered_ == message.source.generation &&
                                 claim_.world.generation != entered_ && committed_ == message.committed_step;
  entered_ = 0;
  if (!AdoptSource(message, source_is_entered)) {
    Forget();
    return;
  }
  generation_ = message.world.generation;
  world_ = message.world;
  committed_ = message.committed_step;
  purpose_ = message.purpose;
  save_ = message.save;
  microbatches_ = message.microbatches;
  in_world_ = working_ = true;
  actions_.emplace_back(RecoverTask{message, world_.RankOf(member_.id)});
}

// The step prepared is committed. The world, which may have thousands of members, is copied at its first commit only.
void WorkerSession::Hold(int64_t step, bool save) {
  actions_.emplace_back(UpdateTask{step, save ? generation_ : 0});
  if (claim_.world.generation != world_.generation) claim_.world = world_;
  claim_.committed_step = step;
  claim_.prepared_step = 0;
}

// Brings what we hold to the step of the new world. False if that cannot be, although the others count on it.
bool WorkerSession::AdoptSource(const WorldMessage& message, bool source_is_entered) {
  const World& source = message.source;
  if (source_is_entered) claim_ = {source, committed_, 0, {}};
  const bool prepared = claim_.prepared_step != 0 && claim_.prepared_step == message.committed_step;
  if (prepared && world_.generation == source.generation) Hold(message.committed_step, /*save=*/false);
  claim_.prepared_step = 0;
  if (source.RankOf(member_.id) < 0) {
    claim_ = {};  // the others hold the state; we get our part anew
    return true;
  }
  return claim_.world.generation == source.generation && claim_.committed_step == message.committed_step;
}

void WorkerSession::Handle(const CommitMessage& message) {
  if (message.generation != generation_ || claim_.prepared_step == 0 || message.step != claim_.prepared_step) return;
  committed_ = message.step;
  const bool last = committed_ >= total_steps_;  // what is saved then is saved by the ending
  if (last) save_ = message.save;
  Hold(message.step, message.save && !last);
  if (!message.microbatches.empty()) microbatches_ = message.microbatches;
  StartNextTask();
}

void WorkerSession::Handle(const AskWorldMessage& message) {
  for (const World* world : {&claim_.world, &world_}) {
    if (world->generation != message.generation || world->members.empty()) continue;
    actions_.emplace_back(SendToCoordinator{KnownWorldMessage{*world}});
    return;
  }
}

void WorkerSession::Handle(const RefusedMessage& message) {
  Abort(message.reason);
  if (message.rejoin) {
    Forget();
  } else if (message.other_run || (message.keep && (claim_.world.generation != 0 || claim_.prepared_step != 0))) {
    in_world_ = false;  // the connection is closed, and over the next one it asks again
  } else {
    Exit({.exit_code = 1, .reason = message.reason, .refused = true});
  }
}

void WorkerSession::Handle(const EndMessage& message) {
  Abort(message.reason);
  Exit({.exit_code = message.exit_code, .reason = message.reason});
}

// --- the tasks

bool WorkerSession::Answers(uint64_t generation) {
  if (!working_ || generation != generation_) return false;
  working_ = false;
  return true;
}

void WorkerSession::On(const RecoverDone& event) {
  if (!Answers(event.report.generation)) return;
  entered_ = generation_;
  if (event.report.mirror_bytes == 0) mirrored_ = generation_;
  Send(event.report);
  StartNextTask();
}

void WorkerSession::On(const MirrorsFilled& event) {
  if (event.generation != generation_) return;
  mirrored_ = generation_;
  Send(MirroredMessage{generation_});
}

void WorkerSession::On(const StepPrepared& event) {
  if (!Answers(event.vote.generation)) return;
  claim_.prepared_step = event.vote.step;
  Send(event.vote);
}

void WorkerSession::On(const EndingDone& event) {
  if (Answers(event.generation)) Send(FinishedMessage{event.generation});
}

void WorkerSession::On(const TaskFailed& event) {
  if (Answers(event.failure.generation)) Send(event.failure);
}

// Cut off from the coordinator there is no point in going on: it makes a new world without asking us.
void WorkerSession::StartNextTask() {
  if (!in_world_) return;
  working_ = true;
  if (purpose_ == Purpose::kStop || committed_ >= total_steps_) {
    actions_.emplace_back(EndingTask{generation_, committed_, purpose_, save_});
  } else {
    actions_.emplace_back(StepTask{generation_, committed_ + 1, microbatches_});
  }
}

void WorkerSession::Abort(const std::string& reason) {
  if (working_) actions_.emplace_back(AbortTask{reason});
  working_ = false;
}

void WorkerSession::Forget() {
  ++member_.id.incarnation;
  claim_ = {};
  entered_ = 0;
  in_world_ = false;
  actions_.emplace_back(ForgetTask{member_.id});
  if (connected_) Join();
}

void WorkerSession::Join() {
  JoinMessage join{member_, claim_, digests_, generation_, run_};
  const bool is_new = world_.generation != claim_.world.generation;  // no step was committed in it
  if (claim_.prepared_step != 0 && is_new) join.claim.prepared_world.generation = world_.generation;
  if (entered_ != 0 && mirrored_ == entered_ && is_new) {
    join.claim.entered_world.generation = entered_;
    join.claim.committed_step = committed_;
  }
  join.claim.world = {.generation = join.claim.world.generation, .members = {}};
  actions_.emplace_back(SendToCoordinator{std::move(join)});
}

void WorkerSession::Exit(ExitTask task) {
  exited_ = true;
  actions_.emplace_back(std::move(task));
}

// What was meant for a connection that is gone is not said over the next one: the Join says what there is to know.
void WorkerSession::Send(WorkerMessage message) {
  if (in_world_) actions_.emplace_back(SendToCoordinator{std::move(message)});
}

}  // namespace holdfast
