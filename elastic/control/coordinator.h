#pragma once
// The coordinator's decisions: who is in the world, which step is committed, who is dead, hung or slow. A pure state
// machine: events in, actions out, in order. No clock, thread, socket or file inside; the same code runs behind gRPC
// and under simulated time (tests/elastic/control).
//
// Protocol
//   Workers join and wait. When enough are there, a World is published; its members connect to each other through the
//   coordinator (Rendezvous, Peers), move state to where the new placement wants it, and step. A step is committed when
//   every member has voted for it with equal bits; the commit is recorded (RecordAction) before anybody is told of it.
//   A member that is lost, hung, or reported by its peers makes a new World, with a higher generation, that names the
//   last committed step and the world in which its state lies (`source`: the last world that committed a step).
//   Workers that join later are taken in after a commit. A member of the source world with the same incarnation in the
//   new world always holds its part of the state: who comes back with stale state is refused, and joins anew without.
//   After a restart of the coordinator the workers' claims tell where the state lies; the recorded steps count as
//   committed, for every member had voted for them, and no others do.
//   A checkpoint is begun with a commit: every member writes its part in the background and reports it (Saved); when
//   all have, the shell makes it exist. Where no holder of some part of the state is left, and at the start of a run
//   that was ended, the world begins from the newest checkpoint; what was done after it is given up: first by a barrier
//   (framework/base/branch.h), then what was recorded is cut off (RewindAction). A member that cannot load a checkpoint
//   has it verified: what is whole stays, and the member goes.
//
// Parts
//   Membership (roster, formation of the next world, the open one), what is committed and where it lies (StateLocation,
//   CheckpointControl), watch (links, pace, stragglers, blame) and the run's end. Each says what state it is in and
//   keeps that true; what an event means to several of them is decided here.
//
// Thread-safety: none.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "elastic/control/ballot.h"
#include "elastic/control/blame.h"
#include "elastic/control/checkpoint_control.h"
#include "elastic/control/damaged_data.h"
#include "elastic/control/link_watch.h"
#include "elastic/control/links.h"
#include "elastic/control/messages.h"
#include "elastic/control/open_world.h"
#include "elastic/control/roster.h"
#include "elastic/control/run_end.h"
#include "elastic/control/run_event.h"
#include "elastic/control/run_status.h"
#include "elastic/control/seats.h"
#include "elastic/control/state_location.h"
#include "elastic/control/state_source.h"
#include "elastic/control/step_pace.h"
#include "elastic/control/straggler.h"
#include "elastic/control/validations.h"
#include "elastic/control/worker_history.h"
#include "elastic/control/world_decision.h"
#include "elastic/control/world_formation.h"
#include "framework/base/branch.h"
#include "framework/base/clip_text.h"
#include "framework/base/limits.h"
#include "framework/base/validation_result.h"
#include "framework/config/config.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

/// Time since any fixed moment.
using Instant = std::chrono::nanoseconds;

/// The shell's name for one stream from a worker or agent; never used twice.
using Connection = uint64_t;

struct CoordinatorOptions {
  ElasticConfig elastic;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  int64_t microbatches = 1;  // of a step
  int64_t total_steps = 0;
  int64_t data_tokens = 0;           // as RunStarted has it
  bool validates = false;            // there is a validation set: after the last step, and
  int64_t validate_every_steps = 0;  // after every n-th one; 0 = no others
  EarlyStopRule early_stop;
  UsedCells used_cells;  // by the model: state is lost with these only
  RunDigests digests;    // what workers must have; of what is 0 or empty, anything; their data is learned
  // What an earlier coordinator of this run left on disk:
  uint64_t last_generation = 0;
  Branch branch;
  std::map<std::string, uint64_t> contradicted;          // as PersistAction had it
  std::map<std::string, Contradictions> contradictions;  // the same
  int64_t recorded_step = 0;                             // the last one in metrics.jsonl
  int64_t agreed_step = 0;                               // the last one there with a digest
  uint64_t agreed_digest = 0;                            // StateDigest, of that step
  std::vector<ValidationResult> validations;             // those there, up to that step
  std::vector<CheckpointChoice> checkpoints;             // newest first
  bool had_checkpoint = false;                           // ever
  bool workers_are_new = false;                          // no worker can hold state of an earlier life of this run
  bool finished = false;  // all is done: only those are to be told that the coordinator before did not reach
  uint64_t run = 0;       // the number that all coordinators of the run have; 0 = whoever comes is of it
  std::string run_name;
  Instant since_1970{0};  // at Instant 0: what is left for the next coordinator has times that it understands
};

// --- events ----------------------------------------------------------------------------------------------------------
struct MessageEvent {
  Connection from = 0;
  WorkerMessage message;
};
struct DisconnectEvent {
  Connection connection = 0;
  std::string cause;
};
struct TickEvent {};  // at least every heartbeat_interval_ms / 2
struct StopEvent {    // the coordinator's own process was asked to stop
  int signal = 0;
};
/// Something cannot be carried out for good: the run ends.
struct GiveUpEvent {
  std::string reason;
};
/// Answers a CommitCheckpointAction.
struct CheckpointDoneEvent {
  int64_t step = 0;
  uint64_t generation = 0;
  std::string name;
  std::string cause;    // why it does not exist; empty = it does
  bool fenced = false;  // another run has taken over the checkpoints: this one is to end
  int64_t bytes = 0;
  double stall_seconds = 0;              // as the action had it
  std::vector<CheckpointChoice> usable;  // now, newest first
  bool no_room = false;                  // as in SavedMessage
};
/// Old checkpoints were deleted after a CheckpointDoneEvent, or could not be; or it was looked for a MakeRoomAction
/// which there are.
struct CheckpointsTidiedEvent {
  std::string warning;
  std::vector<CheckpointChoice> usable;
};
/// Answers a VerifyCheckpointAction.
struct CheckpointVerifiedEvent {
  std::string name;
  std::string cause;     // empty: it is whole
  bool damaged = false;  // else nobody knows
};
using CoordinatorEvent = std::variant<MessageEvent, DisconnectEvent, TickEvent, StopEvent, GiveUpEvent,
                                      CheckpointDoneEvent, CheckpointsTidiedEvent, CheckpointVerifiedEvent>;

// --- actions, to be carried out in order -----------------------------------------------------------------------------
struct SendAction {
  Connection to = 0;
  CoordinatorMessage message;
};
/// The same to many: a world is said to thousands, but made into bytes once.
struct SendToAllAction {
  std::vector<Connection> to;
  CoordinatorMessage message;
};
struct CloseAction {
  Connection connection = 0;
};
/// Store all of it durably before any later action.
struct PersistAction {
  uint64_t generation = 0;
  Branch branch;
  std::map<std::string, uint64_t> contradicted = {};          // by worker: an incarnation whose claims do not count
  std::map<std::string, Contradictions> contradictions = {};  // as WorkerHistory has them
};
/// A committed step: write its metrics line, durably, before any later action.
struct RecordAction {
  int64_t step = 0;  // from 1
  uint32_t loss_bits = 0, grad_norm_bits = 0;
  double lr = 0;
  uint64_t generation = 0;
  int64_t world_size = 0;
  double peak_flops = 0;                            // of the world's devices together; 0 = unknown
  double stall_seconds = 0;                         // the longest a rank was held up by a checkpoint
  ExchangedBytes exchanged = {};                    // by all ranks
  std::vector<ChunkDigest> digests;                 // of all chunks in order; empty unless it was a digest step
  std::optional<ValidationResult> validation = {};  // with the state after the step before
  std::vector<Figure> figures = {};                 // what else its line says
};
/// All parts of a checkpoint are durable: make it exist. Takes its time, beside what follows.
struct CommitCheckpointAction {
  int64_t step = 0;
  uint64_t generation = 0;
  std::vector<SavedMessage> shards;       // by rank
  double stall_seconds = 0;               // of the slowest
  std::optional<double> validation_loss;  // of this very step
  uint64_t data_digest = 0;               // RunDigests::data
  uint64_t kernel_digest = 0;             // RunDigests::kernels
  uint64_t state_digest = 0;              // of the step's metrics line; 0 = it has none
};
/// The run goes back to the state after `step`: what was recorded of later steps is to be cut off.
struct RewindAction {
  int64_t step = 0;
};
/// Read all of a checkpoint, beside what follows.
struct VerifyCheckpointAction {
  std::string name;
};
/// A checkpoint could not be written, as there is no room, or its place was removed: those begun before this one that
/// were never finished, or given up, may go, and the place is made anew.
struct MakeRoomAction {
  int64_t step = 0;
  uint64_t generation = 0;
};
/// For whoever watches (elastic/coordinator/run_observer.h).
struct ReportAction {
  RunEvent event;
};
/// The run is over; all that has to be said to workers has been sent.
struct EndAction {
  int exit_code = 0;
  std::string reason;
};
using CoordinatorAction =
    std::variant<SendAction, SendToAllAction, CloseAction, PersistAction, RecordAction, CommitCheckpointAction,
                 RewindAction, VerifyCheckpointAction, MakeRoomAction, ReportAction, EndAction>;

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);

  std::vector<CoordinatorAction> OnEvent(Instant now, const CoordinatorEvent& event);

  /// What `holdfast status` shows.
  RunStatus Status(Instant now) const;

 private:
  // coordinator.cc: events come in, actions go out.
  void On(const MessageEvent& event);
  void On(const DisconnectEvent& event);
  void On(const TickEvent& event);
  void On(const StopEvent& event);
  void On(const GiveUpEvent& event) { Fail(event.reason); }
  void On(const CheckpointDoneEvent& done);
  void On(const CheckpointsTidiedEvent& tidied);
  void On(const CheckpointVerifiedEvent& verified);
  void ForgiveOwnAbsence();
  void Send(Connection to, CoordinatorMessage message);
  void SendToMembers(CoordinatorMessage message);
  void Report(RunEvent event);
  void RequestStop(int signal, const std::string& by);
  std::optional<LoadProgress> LoadingNow() const;
  /// The event is RunFinished, RunStopped or RunFailed. Thousands are told the reason, which may name thousands.
  template <class Event>
  void End(int exit_code, const std::string& reason) {
    EndWith({exit_code, ClipText(reason, kMaxTextBytes)}, Event{{exit_code, committed_, reason}});
  }
  void EndWith(const EndMessage& end, RunEvent event);
  void Fail(const std::string& reason) { End<event::RunFailed>(1, reason); }

  // coordinator_membership.cc: workers and agents come and go.
  void Handle(Connection from, const JoinMessage& join);
  void Handle(Connection from, const AgentHelloMessage& hello);
  bool RefuseOtherRun(Connection from, uint64_t run, const std::string& who);
  void RefuseAgent(Connection from, const AgentHelloMessage& hello, const AgentHelloMessage& other);
  void Handle(Connection from, const WorkerExitMessage& exit);
  void Handle(Connection from, const LeaveMessage& leave);
  void ForgetLeaversThatAreAway();
  void RememberLeft(const std::string& node);
  bool IsLeaving(const std::string& node) const { return leaving_.count(node) > 0; }
  bool LeaversCanGo() const;
  bool AllMembersLeave() const;
  bool CanSpare(const std::function<bool(const Member&)>& some) const;
  void SayGoodbye();
  static EndMessage Goodbye(const std::string& node, int signal);
  void StopIfNobodyStays();
  uint64_t DataDigestOf(const CheckpointChoice& checkpoint) const;
  std::string OtherThanRun(const RunDigests& joins) const;
  std::string OtherKernels(const RunDigests& joins) const;
  bool MayJoin(Connection from, const JoinMessage& join);
  bool MakeRoom(Connection from, const JoinMessage& join);
  bool SendSpareAway();
  void ReportRefused(const JoinMessage& join, const std::string& cause);
  void RefuseSettings(Connection from, const std::string& reason);
  void RefuseData(Connection from, const Member& member);
  bool ChooseWhatIsAlike();
  uint64_t OfMost(uint64_t JoinedWorker::*digest, uint64_t of_checkpoint) const;
  StateClaim OnBranch(StateClaim claim) const;
  bool IsSaneWorld(const World& world) const;
  void Handle(Connection from, const KnownWorldMessage& known);
  void Know(const World& world);
  void AskForWorlds();
  bool IsContradicted(const WorkerId& id) const;
  bool HasStaleClaim(const WorkerId& id, const StateClaim& claim) const;
  void Refuse(Connection to, const std::string& reason, bool rejoin);
  enum class Leave { kGone, kClosed, kRefused };
  void Remove(const std::string& name, const std::string& cause, Leave how);
  void RecordFailure(const JoinedWorker& worker, bool at_fault);

  // coordinator_world.cc: from one world to the next.
  void Advance();
  void Persist();
  std::chrono::seconds TimeSince1970() const {
    return std::chrono::duration_cast<std::chrono::seconds>(options_.since_1970 + now_);
  }
  void EndIfNothingIsHeld();
  bool MayDecide() const;
  void ResolveClaims();
  void AdoptSource(const StateSource& found);
  bool AdoptEntered();
  void Publish(const WorldDecision& decision);
  WorldQuestion Question() const;
  bool Decide();
  std::vector<int64_t> FirstMicrobatches(const MemberList& members) const;
  bool MustWaitForOthers(size_t members);
  void AwaitState(const WorldDecision& decision);
  int64_t NumNotKeptOut() const;
  bool AreTooFew() const;
  void AwaitMore();
  bool AreContradicted(const std::vector<Member>& holders) const;
  bool AreLostForGood(const std::vector<Member>& holders) const;
  void RewindOrFail(const std::vector<Member>& holders);
  void CloseWorld(const std::string& reason, double detect_seconds);
  std::optional<Validations::EarlyStop> EarlyEnd() const;
  bool Ending() const;
  std::string EndReason(const RunEnd::Stop* stop) const;
  std::string WhatStartsItAgain() const;
  bool WantsNewcomers() const;

  // coordinator_step.cc: what members of the open world report.
  void Handle(Connection from, const HeartbeatMessage& heartbeat);
  void Handle(Connection from, const RendezvousMessage& rendezvous);
  void Handle(Connection from, const RecoveredMessage& recovered);
  void Handle(Connection from, const MirroredMessage& mirrored);
  void MarkMirrored(int rank);
  void ReportMirrors();
  void Handle(Connection from, const VoteMessage& vote);
  void Handle(Connection from, const FailureMessage& failure);
  void Handle(Connection from, const ValidationMessage& validation);
  void Handle(Connection from, const FinishedMessage& finished);
  void Handle(Connection from, const StopRequestMessage& request);
  JoinedWorker* MemberOf(Connection from, uint64_t generation);
  void CommitStep();
  void RecordStep();
  void ReportNoGradient(float loss, float grad_norm);
  void ChangeMembers();
  bool MeasureSpeeds();
  void RemoveDissenters(const std::vector<int>& ranks);
  void RemoveContradicted(const std::vector<std::string>& names, const std::string& cause);
  void JudgeCopies(const std::vector<Ballot::Difference>& differences);
  void DistrustState(const std::string& who);
  bool GoBackToAgreed(const std::string& reason);
  void ReportRecovered();
  void EndIfFinished();
  void EndUnsaved(const std::string& what);
  bool AwaitRoom(const std::string& cause);
  void EndWait();

  // coordinator_checkpoint.cc: when one is begun, exists, is gone back to.
  void Handle(Connection from, const SavedMessage& saved);
  void CommitSaves();
  bool IsValidationStep(int64_t step) const;
  bool MayBeBest() const;
  std::optional<double> LossNow() const;
  bool AwaitsValidation(int64_t step) const;
  bool MustSaveAtEnd() const;
  void MakeRoom(int64_t step, uint64_t generation);
  void MakeRoomNow();
  void SaveFailed(int64_t step, CheckpointControl::Failure failure);
  void AbandonSavesOf(const WorkerId& id);
  void ReportSlowStorage();
  bool Rewind(const std::string& reason);
  void LoadFrom(const CheckpointChoice& choice);
  void BeginAnew();
  bool MayBeginAnew() const;
  void GoBackTo(const CheckpointChoice& choice, const std::string& reason);
  void RejectCheckpoint(const std::string& cause);
  void DoubtCheckpoint(const JoinedWorker& worker, const std::string& cause);
  void RemoveDoubter(const WorkerId& id, const std::string& cause);

  // coordinator_links.cc: who reaches whom.
  void Handle(Connection from, const ReachMessage& reach);
  bool BeginProbe(LinkWatch::Purpose purpose);
  bool TriesLinks();
  void WatchLinks();
  bool EverybodyWaits() const;
  void JudgeLinks();
  std::set<Link> BetweenNodes(const std::set<Link>& links) const;
  std::vector<std::vector<int>> LastHoldersAt(const std::map<std::string, int>& numbers) const;
  void LeaveOut(const std::set<Link>& cut);
  template <class Event>
  void ReportLinks(const std::set<Link>& links, const std::string& without);
  void TakeBack(const LinkWatch::Probe& probe);
  void ReportSlowLink(const ProbeRound& round);

  // coordinator_watch.cc: what nobody reports.
  static bool WaitsForOthers(Phase phase);
  std::string AwaitedMembers() const;
  void WatchPace();
  void Close(Connection connection);
  void LookForSlowLink();
  void MeasurePace();
  void ReportTooFew(const std::string& detail);
  void RemoveCut(const std::string* node);
  void RemoveSilent();
  void RemoveStuck();
  void ReportNoProgress();
  void RemoveHung(const std::string& name, Instant since, const std::string& why, Leave how);
  void RetryFailed();
  bool MembersKnowTheDamage() const;

  const CoordinatorOptions options_;
  Instant now_{0};
  std::optional<Instant> last_event_;
  std::vector<CoordinatorAction> actions_;

  // Membership.
  Roster roster_;
  std::set<Connection> closed_;            // whose end has not been reported yet
  std::map<int64_t, std::string> spares_;  // by arrival: some that held nothing when one was sent away
  WorkerHistory history_;
  struct Contradicted {
    uint64_t incarnation = 0;
    int64_t step = 0;  // once a later one is committed, nothing counts that it claims
  };
  std::map<std::string, Contradicted> contradicted_;  // by name: the last of which a majority had other bits
  std::set<std::string> refusals_;                    // causes that were reported
  struct Leaving {
    int signal = 0;
    uint64_t agent = 0;  // AgentHelloMessage::instance of the one that asked for it
    bool gone = false;   // was let go; some of its workers may be starting still
  };
  std::map<std::string, Leaving> leaving_;     // by node
  bool leavers_are_news_ = false;              // some of them were not looked at while there is no world
  std::set<std::string> left_;                 // nodes that have, and of which no agent has come since
  std::optional<Instant> nobody_stays_since_;  // all who are connected are to leave, or kept out
  bool saved_for_leavers_ = false;             // all members are to leave; they may go before others hold the state
  uint64_t data_digest_ = 0;                   // of the run's workers; 0 = not chosen yet
  uint64_t kernels_ = 0;                       // likewise, RunDigests::kernels, or the coordinator's own
  WorldFormation formation_;
  struct Decided {
    WorldQuestion question;
    WorldDecision decision;
  };
  std::optional<Decided> decided_;  // while there is no world: the last, if what follows from it has been done
  std::optional<OpenWorld> open_;

  // What is committed, and where it lies.
  uint64_t generation_;  // the last one used
  Branch branch_;
  int64_t committed_ = 0;
  int64_t agreed_ = 0;      // the last digest step, or the one loaded: the holders of every chunk agreed about it
  uint64_t agreed_in_ = 0;  // the world in which they did, or that has stepped first since; 0: none has yet
  StateLocation state_;
  Seats seats_;
  CheckpointControl checkpoints_;
  Validations validations_;

  // Watch.
  LinkWatch links_;
  ToldCuts told_cuts_;
  std::string suspected_link_;  // found slow by the last round
  StepPace pace_;
  StragglerDetector stragglers_;
  Blame blame_;
  DamagedData damaged_data_;
  bool told_no_gradient_ = false;
  struct Attempts {               // that came to nothing
    int64_t disputes = 0;         // about the bits of a step, since the last commit
    int64_t distrusts = 0;        // times on end that two copies differed, and the run was back there again
    int64_t distrusted_step = 0;  // the last at which they did
    int failed_endings = 0;       // consecutive worlds that were to end the run and failed
    int unsaved_endings = 0;      // whose checkpoint could not be written
    int starved_worlds = 0;       // on end, of too little memory, while no worker held the state
  };
  Attempts attempts_;
  struct RoomWait {
    Instant since;
    std::string cause;
  };
  static constexpr std::chrono::seconds kRoomInterval{10};
  std::optional<RoomWait> room_wait_;           // all steps are done, but what is to be written last cannot be now
  std::optional<MakeRoomAction> room_to_make_;  // for the next checkpoint, after one that failed
  std::string tidied_warning_;                  // CheckpointsTidiedEvent's last

  RunEnd end_;
  std::optional<Instant> farewell_;  // options_.finished: since when
};

}  // namespace holdfast
