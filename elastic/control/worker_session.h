#pragma once
// The worker's side of the protocol (coordinator.h) as a pure state machine. Its shell (elastic/worker) has one thread
// that reads messages and one that works; the machine tells the first what to send and when to abort, the second what
// to do next. Tasks are done in order, one at a time; each is answered by its event.
//
// A worker without coordinator keeps its state, finishes the step in flight, and joins again with a claim on its state
// when the coordinator is back.
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
struct SessionMessage {
  CoordinatorMessage message;
};
struct RecoverDone {  // answers RecoverTask
  RecoveredMessage report;
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
using SessionEvent = std::variant<SessionConnected, SessionDisconnected, SessionMessage, RecoverDone, StepPrepared,
                                  EndingDone, TaskFailed>;

// --- actions ---------------------------------------------------------------------------------------------------------
struct SendToCoordinator {
  WorkerMessage message;
};
/// The task at work is of a world that is gone: end it soon. It answers as it can; the answer is ignored.
struct AbortTask {
  std::string reason;
};
/// Connect to the members of the world and fetch what its placement wants here. What this worker holds by `source`
/// stays until the first UpdateTask of the new world.
struct RecoverTask {
  WorldMessage world;
};
struct StepTask {
  uint64_t generation = 0;
  int64_t step = 0;                   // from 1
  std::vector<int64_t> microbatches;  // by rank
};
/// Apply the update of the step prepared last. Never dropped, never fails.
struct UpdateTask {
  int64_t step = 0;
};
/// The last step is committed (kTrain: validate, save the model) or a stop was asked for (kStop: save the model).
struct EndingTask {
  uint64_t generation = 0;
  int64_t step = 0;
  Purpose purpose = Purpose::kTrain;
};
/// Forget all state: the coordinator refused it. This process goes on with a new incarnation (`id`).
struct ForgetTask {
  WorkerId id;
};
struct ExitTask {
  int exit_code = 0;
  std::string reason;
};
using SessionAction =
    std::variant<SendToCoordinator, AbortTask, RecoverTask, StepTask, UpdateTask, EndingTask, ForgetTask, ExitTask>;

class WorkerSession {
 public:
  /// `member.id.incarnation` must be new in the life of the run (random 64 bits, say); later ones count up from it.
  WorkerSession(Member member, uint64_t config_digest, int64_t total_steps);

  std::vector<SessionAction> OnEvent(const SessionEvent& event);

  const Member& member() const { return member_; }
  uint64_t generation() const { return generation_; }

 private:
  Member member_;
  uint64_t config_digest_;
  int64_t total_steps_;
  uint64_t generation_ = 0;  // of the world we are in; messages of older ones are ignored
  StateClaim claim_;
};

}  // namespace holdfast
