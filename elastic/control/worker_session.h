#pragma once
// The worker's side of the protocol (coordinator.h) as a pure state machine. Its shell (elastic/worker) has one thread
// that reads messages and one that works; the machine tells the first what to send and when to abort, the second what
// to do next. Tasks are done in order, one at a time; each is answered by its event.
//
// A worker without coordinator keeps its state, finishes the step in flight, and joins again with a claim on its state
// when the coordinator is back. Answers of tasks that belong to a world gone by are ignored, so the shell may drop
// tasks that have been aborted without a word; all but UpdateTasks, which are never dropped.
//
// Thread-safety: none.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

// --- events ----------------------------------------------------------------------------------------------------------
struct SessionConnected {};
struct SessionDisconnected {};
/// Nobody else ends this process, and no coordinator has had it for elastic.coordinator_timeout_ms, after one was
/// there; again and again while that is so. It ends if none is connected: what it holds is of use to nobody who has not
/// come by then.
struct SessionDeserted {};
/// This process was asked to stop, which is meant for the whole run. `is_alone`: nobody else ends it, so it ends itself
/// while it is not connected and no coordinator has taken it in. It may hold what nobody else has of the run that it
/// was taken into, and so waits for that one's coordinator until SessionDeserted.
struct SessionStopAsked {
  int signal = 0;
  bool is_alone = false;
};
struct SessionMessage {
  CoordinatorMessage message;
};
struct RecoverDone {  // answers RecoverTask
  RecoveredMessage report;
};
/// The mirrors that the world lacked are there; at any time after its RecoverTask was begun.
struct MirrorsFilled {
  uint64_t generation = 0;
};
struct StepPrepared {  // answers StepTask
  VoteMessage vote;
};
struct EndingDone {  // answers EndingTask
  uint64_t generation = 0;
};
struct TaskFailed {  // answers any task but UpdateTask, which cannot fail
  FailureMessage failure;
};
using SessionEvent = std::variant<SessionConnected, SessionDisconnected, SessionDeserted, SessionStopAsked,
                                  SessionMessage, RecoverDone, MirrorsFilled, StepPrepared, EndingDone, TaskFailed>;

// --- actions ---------------------------------------------------------------------------------------------------------
struct SendToCoordinator {
  WorkerMessage message;
};
/// The task at work, and those asked for before and not begun, are of a world that is gone: end them soon, but for
/// UpdateTasks. Answers are ignored.
struct AbortTask {
  std::string reason;
};
/// Connect to the members of the world and fetch what its placement wants here. What this worker holds by `source`
/// stays until the first UpdateTask of the new world. If the source is the world it has entered last, what it fetched
/// there is what it holds from now on.
struct RecoverTask {
  WorldMessage world;
  int rank = -1;  // in it; this process may have another incarnation by the time the task is begun
};
struct StepTask {
  uint64_t generation = 0;
  int64_t step = 0;                   // from 1
  std::vector<int64_t> microbatches;  // by rank
};
/// Apply the update of the step prepared last, and if `save_for` is not 0 begin to write a checkpoint of it in the
/// background, in the name of that generation. Never dropped, never fails.
struct UpdateTask {
  int64_t step = 0;
  uint64_t save_for = 0;
};
/// The last step is committed (kTrain: validate, save the model) or a stop was asked for (kStop: save the model).
/// `save`: write a checkpoint.
struct EndingTask {
  uint64_t generation = 0;
  int64_t step = 0;
  Purpose purpose = Purpose::kTrain;
  bool save = false;
};
/// Forget all state: the coordinator refused it. This process continues with a new incarnation (`id`).
struct ForgetTask {
  WorkerId id;
};
struct ExitTask {
  int exit_code = 0;
  std::string reason;
  bool refused = false;  // by the coordinator, for good
};
using SessionAction =
    std::variant<SendToCoordinator, AbortTask, RecoverTask, StepTask, UpdateTask, EndingTask, ForgetTask, ExitTask>;

class WorkerSession {
 public:
  /// `member.id.incarnation` must be new in the life of the run (random 64 bits, say); later ones count up from it.
  /// `run`: the number of the run that the worker was started for; 0 = not known.
  WorkerSession(Member member, const RunDigests& digests, int64_t total_steps, uint64_t run = 0);

  std::vector<SessionAction> OnEvent(const SessionEvent& event);

  const Member& member() const { return member_; }
  uint64_t generation() const { return generation_; }
  /// By a coordinator, or it was started for a run.
  bool was_taken_in() const { return run_ != 0; }
  /// It was told to exit: whatever comes is nothing to it.
  bool exited() const { return exited_; }

 private:
  void On(const SessionConnected&);
  void On(const SessionDisconnected&);
  void On(const SessionDeserted&);
  void On(const SessionStopAsked& asked);
  void On(const SessionMessage& event);
  void On(const RecoverDone& event);
  void On(const MirrorsFilled& event);
  void On(const StepPrepared& event);
  void On(const EndingDone& event);
  void On(const TaskFailed& event);

  void Handle(const WorldMessage& message);
  void Handle(const PeersMessage&) {}  // the shell's own affair
  void Handle(const ProbeMessage&) {}  // as well
  void Handle(const WelcomeMessage& message) { run_ = message.run; }
  void Handle(const AskWorldMessage& message);
  void Handle(const CommitMessage& message);
  void Handle(const RefusedMessage& message);
  void Handle(const EndMessage& message);

  bool Answers(uint64_t generation);
  void Hold(int64_t step, bool save);
  bool AdoptSource(const WorldMessage& message, bool source_is_entered);
  void StartNextTask();
  void Abort(const std::string& reason);
  void Forget();
  void Join();
  void PassOnStop();
  void EndIfAlone();
  void Exit(ExitTask task);
  void Send(WorkerMessage message);

  Member member_;
  RunDigests digests_;
  int64_t total_steps_;
  uint64_t run_;             // whose we are; 0 = not known
  uint64_t generation_ = 0;  // of the world we are in; messages of older ones are ignored
  uint64_t entered_ = 0;     // the same once we have our part of its state
  uint64_t mirrored_ = 0;    // the same once we have all that it is to mirror here
  StateClaim claim_;         // but for prepared_world and entered_world, which are world_

  World world_;
  int64_t committed_ = 0;  // step of the run, whether or not we hold its state yet
  Purpose purpose_ = Purpose::kTrain;
  bool save_ = false;  // at the end
  std::vector<int64_t> microbatches_;
  int stop_signal_ = 0;
  bool is_alone_ = false;  // as SessionStopAsked says
  bool connected_ = false;
  bool in_world_ = false;  // told so over the connection we have
  bool working_ = false;   // at a task that is to be answered
  bool exited_ = false;
  std::vector<SessionAction> actions_;
};

}  // namespace holdfast
