#pragma once
// Simulated coordinator processes around real Coordinators, and the host that starts one after the other. What a
// process has stored survives it (sim_disk.h), and it may die, or stand still for any time, between any two actions and
// while it writes. While one stands still another may be started in its place; when it goes on, it is of yesterday.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/sharded/fence.h"
#include "elastic/control/checkpoint_schedule.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/action_queue.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "framework/base/status.h"
#include "framework/metrics/run_lock.h"
#include "tests/elastic/control/sim_clock.h"
#include "tests/elastic/control/sim_digest.h"
#include "tests/elastic/control/sim_disk.h"
#include "tests/elastic/control/sim_lease.h"
#include "tests/elastic/control/sim_network.h"
#include "tests/elastic/control/sim_truth.h"

namespace holdfast::sim {

struct CoordinatorBugs {
  bool forgets_generation = false;  // a restart does not know what was persisted
  bool commits_unrecorded = false;  // records after having told everybody
  bool loses_lines = false;         // the record is written, not synced
  bool ignores_lock = false;        // does not look whether the run is still its own
};

class CoordinatorRuntime {
 public:
  CoordinatorRuntime(Clock& clock, Network& network, Truth& truth, CoordinatorOptions options, CoordinatorBugs bugs)
      : clock_(clock), network_(network), truth_(truth), options_(std::move(options)), bugs_(bugs) {}

  /// Several wait for their turn under a lease (sim_lease.h), instead of one being started after the other.
  void UseLeases(int count, LeaseBugs bugs) {
    candidates_ = std::make_unique<Candidates>(clock_, truth_, count, bugs,
                                               [this](int seat, const LeaseSight& from) { return Lead(seat, from); });
  }

  /// Starts one, or, if the lock is held by another, tries again later, as whoever starts them would.
  void Start() {
    if (ended()) return;
    if (candidates_ != nullptr) return candidates_->Start();
    auto process = std::make_unique<Process>();
    Process& p = *process;
    absl::StatusOr<RunLock> lock = TakeLock();
    if (lock.ok()) p.life = ++life_;  // from here on all before it are of yesterday
    const absl::Status prepared = lock.ok() ? Prepare(&p, *std::move(lock)) : lock.status();
    if (!prepared.ok()) {
      ++refused_;
      StartAgainLater();
      return;
    }
    Begin(std::move(process));
  }

  /// After so many actions more, the process dies.
  void CrashAfter(int actions) {
    if (up()) now_->crash_after = actions;
  }
  bool up() const { return now_ != nullptr; }
  bool well() const { return up() && !now_->frozen && !now_->paused && now_->crash_after < 0; }
  int life() const { return life_; }
  int64_t replaced() const { return replaced_; }  // processes that found that they were
  int64_t refused() const { return refused_; }    // starts

  void Freeze() {
    if (!up()) return;
    if (candidates_ != nullptr) return FreezeForAWhile(now_);
    now_->frozen = true;
  }
  void Thaw() {
    if (candidates_ != nullptr) {
      candidates_->Heal();
      for (const auto& p : processes_) Thaw(p.get());
    }
    if (up()) Thaw(now_);
  }
  /// Something happens to those that want to lead, or to their store.
  void StrikeLease() {
    const int64_t kind = clock_.Between(0, 9);
    if (kind <= 4) return candidates_->StrikeStore();
    if (kind <= 6) return Freeze();
    if (kind == 7) return CrashAfter(static_cast<int>(clock_.Between(0, 20)));
    const int seat = candidates_->Any();
    if (up() && now_->seat == seat) return;
    candidates_->Freeze(seat, clock_.Chance(0.5));
    clock_.After(clock_.Between(milliseconds(100), seconds(12)), [this, seat] { candidates_->Thaw(seat); });
  }
  int64_t takes() const { return candidates_ == nullptr ? 0 : candidates_->takes(); }
  /// The process stands still amid something that it stores, the next but so many, or at once. Its lock lapses, another
  /// process is started, and some time later, the first one goes on.
  void Replace(int durable_actions) {
    if (!up()) return;
    now_->hang_after = durable_actions;
    clock_.After(seconds(2), [this, p = now_, life = life_] {
      if (p == now_ && life == life_ && p->hang_after >= 0) Hang(p);
    });
  }

  void Feed(const CoordinatorEvent& event) {
    Process* to = now_;
    if (const auto* message = std::get_if<MessageEvent>(&event)) to = ProcessAt(message->from);
    if (const auto* gone = std::get_if<DisconnectEvent>(&event)) to = ProcessAt(gone->connection);
    Feed(to, event);
  }

  /// The run's exit code, once it is over.
  const std::optional<int>& exit_code() const { return exit_code_; }
  /// "coordinator", a worker's name, or the node that had nobody to leave the run to.
  const std::string& stopped_by() const { return stopped_by_; }
  bool ended() const { return exit_code_.has_value(); }
  template <class Event>
  int64_t Count() const {
    return events_[RunEvent(Event()).index()];
  }
  const std::string& end_reason() const { return end_reason_; }
  RunStatus Status() const { return now_->coordinator->Status(clock_.now()); }
  const std::vector<std::string>& log() const { return log_; }
  uint64_t digest() const { return digest_.digest(); }
  bool keep_log = false, with_digest = false;
  std::function<void()> mirrors_missing = [] {};  // a world begins its first step without them
  double storage_faults = 0;                      // probability, of a claim or a checkpoint
  double slow_saves = 0;                          // probability that making a checkpoint takes up to 20 s
  std::function<void()> rewinding = [] {};        // before committed steps are given up
  std::function<void()> restarting = [] {};       // before a coordinator is started in the place of one that died

 private:
  struct Process {
    int life = 0, server = 0;
    std::optional<RunLock> lock;
    std::unique_ptr<RunRecorder> recorder;
    std::unique_ptr<Fence> fence;  // null: the run has no checkpoints
    Branch persisted, branch;      // the last; and since it is known to be the run's
    std::unique_ptr<Coordinator> coordinator;
    std::unique_ptr<ActionQueue> actions;
    bool dead = false, frozen = false;
    bool lapsed = false;                      // its lock, or it is about to be taken away
    std::deque<std::function<void()>> later;  // while it is frozen
    int crash_after = -1, hang_after = -1;
    bool hangs_before_look = false;
    int seat = -1;                         // under a lease
    bool paused = false;                   // which may be over
    std::deque<CoordinatorEvent> put_off;  // until it has it again
    Instant looked{0};
  };

  void Begin(std::unique_ptr<Process> process) {
    process->server = network_.StartServer();
    now_ = process.get();
    processes_.push_back(std::move(process));
    Tick(now_);
  }

  // --- under a lease ------------------------------------------------------------------------------------------------
  /// As elastic/lease/store_lease.cc takes the lock of the directory.
  absl::StatusOr<RunLock> TakeLockOf(int seat) {
    absl::StatusOr<RunLock> lock = RunLock::Take(disk_.run, candidates_->owner(seat));
    if (!absl::IsAborted(lock.status())) return lock;
    ASSIGN_OR_RETURN(const LockText there, RunLock::Read(disk_.run));
    return RunLock::TakeFrom(disk_.run, there, candidates_->owner(seat));
  }
  bool Lead(int seat, const LeaseSight& /*from*/) {
    if (ended()) return false;
    auto process = std::make_unique<Process>();
    process->seat = seat;
    absl::StatusOr<RunLock> lock = TakeLockOf(seat);
    if (lock.ok()) process->life = ++life_;
    const absl::Status prepared = lock.ok() ? Prepare(process.get(), *std::move(lock)) : lock.status();
    if (!prepared.ok()) {
      ++refused_;
      return false;
    }
    if (up()) network_.HideServer(now_->server);
    Begin(std::move(process));
    return true;
  }
  void FreezeForAWhile(Process* p) {
    p->frozen = true;
    candidates_->Freeze(p->seat, clock_.Chance(0.5));
    clock_.After(clock_.Between(milliseconds(100), seconds(15)), [this, p] {
      if (!p->dead) candidates_->Thaw(p->seat);
      Thaw(p);
    });
  }
  /// As CoordinatorShell does it: messages wait, and for the decisions no time passes.
  void FeedPaused(Process* p, const CoordinatorEvent& event) {
    if (!std::holds_alternative<TickEvent>(event)) p->put_off.push_back(event);
    GoOn(p);
    while (!p->paused && !p->dead && !p->frozen && !p->put_off.empty()) {
      const CoordinatorEvent next = std::move(p->put_off.front());
      p->put_off.pop_front();
      Feed(p, next);
    }
  }

  /// From one that is silent and still has it, as one that stands by does it, or as whoever is started.
  absl::StatusOr<RunLock> TakeLock() {
    if (!std::exchange(is_taken_away_, false)) return RunLock::Take(disk_.run);
    ASSIGN_OR_RETURN(const LockText silent, RunLock::Read(disk_.run));
    return RunLock::TakeFrom(disk_.run, silent);
  }

  // As elastic/launch/prepared_run.cc does it.
  absl::Status Prepare(Process* p, RunLock lock) {
    RETURN_IF_ERROR(disk_.run.TakeOver());
    if (life_ > 1) restarting();
    truth_.CutWhatWasGivenUp();
    if (std::exchange(goes_back_, false)) RETURN_IF_ERROR(WriteWhatIsGivenUp());
    ASSIGN_OR_RETURN(CoordinatorHistory history, ReadCoordinatorHistory(disk_.run));
    truth_.Demand(history.recorded_step == truth_.committed(), "the coordinator finds ", history.recorded_step,
                  " steps, but ", truth_.committed(), " are committed");
    truth_.Demand(history.state.generation == truth_.persisted() && history.state.branch == truth_.branch(),
                  "the coordinator finds generation ", history.state.generation, ", but ", truth_.persisted(),
                  " was persisted");
    truth_.CheckThatNothingToldIsMissing();
    if (CheckpointSchedule(options_.checkpoint).enabled()) RETURN_IF_ERROR(Claim(p, &history.state));
    RETURN_IF_ERROR(disk_.run.CutMetrics(history.recorded_step));
    p->lock.emplace(std::move(lock));
    ASSIGN_OR_RETURN(p->recorder, RunRecorder::Open(disk_.config, disk_.run, nullptr, history.recorded_step));
    p->branch = p->persisted = history.state.branch;
    CoordinatorOptions options = options_;
    options.last_generation = bugs_.forgets_generation ? 0 : history.state.generation;
    options.branch = history.state.branch;
    options.contradicted = history.state.contradicted;
    options.contradictions = history.state.contradictions;
    options.recorded_step = history.recorded_step;
    options.agreed_step = history.agreed_step;
    options.agreed_digest = history.agreed_digest;
    options.validations = history.validations;
    options.used_cells = truth_.UsedCells();
    options.checkpoints = truth_.Usable();
    p->coordinator = std::make_unique<Coordinator>(options);
    p->actions = std::make_unique<ActionQueue>(
        [this, p] { return Look(p); }, [this, p](const CoordinatorAction& action) { return CarryOut(p, action); });
    return absl::OkStatus();
  }
  // The storage may fail at any of the calls that make a claim; whoever starts coordinators then tries again.
  absl::Status Claim(Process* p, CoordinatorState* state) {
    FailNow();
    absl::StatusOr<std::unique_ptr<Fence>> fence =
        Fence::Claim(disk_.storage, absl::StrCat("process ", life_), {state->generation, state->branch});
    disk_.storage.ClearFaults();
    RETURN_IF_ERROR(fence.status());
    p->fence = *std::move(fence);
    *state = {p->fence->epoch() * kGenerationsPerEpoch, p->fence->branch(), state->contradicted, state->contradictions};
    truth_.Persisted(state->generation, state->branch);
    return WriteCoordinatorState(disk_.run, *state);
  }
  void FailNow() {
    if (!clock_.Chance(storage_faults)) return;
    const StorageOperation operations[] = {StorageOperation::kList, StorageOperation::kReadAt,
                                           StorageOperation::kCreate, StorageOperation::kDelete};
    const StorageFault faults[] = {StorageFault::kIoError, StorageFault::kLostAnswer};
    disk_.storage.Inject({.operation = operations[clock_.Between(0, 3)],
                          .fault = faults[clock_.Between(0, 1)],
                          .skip = clock_.Between(0, 2),
                          .count = 1});
  }
  absl::Status WriteWhatIsGivenUp() {
    RETURN_IF_ERROR(WriteCoordinatorState(disk_.run, {truth_.persisted(), truth_.branch()}));
    return disk_.run.CutMetrics(truth_.committed());
  }

  Process* ProcessAt(Connection connection) {
    const int server = network_.ServerOf(connection);
    for (const auto& p : processes_) {
      if (p->server == server && !p->dead) return p.get();
    }
    return nullptr;
  }
  bool IsOfYesterday(const Process* p) const { return p->life < life_; }

  void Feed(Process* p, const CoordinatorEvent& event) {
    if (p == nullptr || p->dead || ended()) return;
    if (p->frozen) {
      p->later.push_back([this, p, event] { Feed(p, event); });
      return;
    }
    if (p->paused) return FeedPaused(p, event);
    std::vector<CoordinatorAction> actions = p->coordinator->OnEvent(clock_.now(), event);
    if (with_digest) {
      for (const CoordinatorAction& action : actions) {
        const auto* report = std::get_if<ReportAction>(&action);
        digest_.Add(clock_.now(), action, report == nullptr ? "" : Line(report->event));
      }
    }
    if (bugs_.commits_unrecorded) {
      std::stable_partition(actions.begin(), actions.end(),
                            [](const CoordinatorAction& a) { return !std::holds_alternative<RecordAction>(a); });
    }
    p->actions->Add(std::move(actions));
    GoOn(p);
  }
  void GoOn(Process* p) {
    const absl::Status status = p->actions->CarryOut();
    if (p->dead || p->frozen) return;
    p->paused = p->seat >= 0 && absl::IsUnavailable(status);
    if (p->paused) return;
    if (status.ok()) p->branch = p->persisted;
    if (!status.ok() && !p->actions->replaced()) p->actions->Look().IgnoreError();  // as before it gives up
    if (p->frozen) return;
    if (p->actions->replaced()) {
      ++replaced_;
      Die(p);
    } else {
      truth_.Demand(status.ok(), "cannot be carried out: ", std::string(status.message()));
    }
  }
  void Thaw(Process* p) {
    if (p->dead || !p->frozen) return;
    p->frozen = false;
    if (now_ == nullptr && !IsOfYesterday(p)) {  // in time
      now_ = p;
      network_.ShowServer(p->server);
    }
    std::deque<std::function<void()>> later;
    later.swap(p->later);
    GoOn(p);
    for (auto& action : later) {
      if (p->dead) return;
      if (p->frozen) {
        p->later.push_back(std::move(action));
      } else {
        action();
      }
    }
  }

  void Die(Process* p) {
    p->dead = true;
    if (p->seat >= 0) candidates_->Ends(p->seat, !p->actions->replaced());
    p->lock.reset();
    p->recorder.reset();
    p->later.clear();
    if (p == now_) now_ = nullptr;
    network_.StopServer(p->server);
  }
  void Crash(Process* p) {
    const bool was_current = p == now_;
    Die(p);
    if (!was_current) return;
    if (bugs_.loses_lines) {
      truth_.LoseLines(clock_.Between(0, 3));
      truth_.Demand(disk_.run.CutMetrics(truth_.committed()).ok(), "the record cannot be cut");
    }
    StartAgainLater();
  }
  void StartAgainLater() {
    if (ended() || candidates_ != nullptr) return;
    clock_.After(clock_.Between(milliseconds(100), seconds(3)), [this] {
      if (!up()) Start();
    });
  }
  // It is held to be dead, and another one is started.
  void Hang(Process* p) {
    p->hang_after = -1;
    if (candidates_ != nullptr) return FreezeForAWhile(p);
    p->frozen = true;
    if (!p->lapsed && clock_.Chance(0.2)) {  // its lock does not lapse: nobody can take its place before it is ended
      clock_.After(clock_.Between(seconds(1), seconds(6)), [this, p] { Thaw(p); });
      const absl::StatusOr<RunLock> lock = RunLock::Take(disk_.run);
      truth_.Demand(absl::IsAborted(lock.status()), "a lock is given away that somebody has");
      return;
    }
    if (life_ % 2 == 0) {
      is_taken_away_ = true;
    } else {
      disk_.LetLockLapse();
    }
    p->lapsed = true;
    now_ = nullptr;
    network_.HideServer(p->server);
    clock_.After(clock_.Between(milliseconds(1), seconds(2)), [this] {
      if (!up()) Start();
    });
    clock_.After(clock_.Between(milliseconds(1), seconds(15)), [this, p] { Thaw(p); });
  }

  void Tick(Process* p) {
    if (p->dead || ended()) return;
    Feed(p, TickEvent{});
    clock_.After(milliseconds(options_.elastic.heartbeat_interval_ms) / 2, [this, p] { Tick(p); });
  }

  // --- actions ------------------------------------------------------------------------------------------------------
  absl::Status Look(Process* p) {
    if (std::exchange(p->hangs_before_look, false)) {
      Hang(p);
      return absl::CancelledError("stands still");
    }
    if (p->seat >= 0) RETURN_IF_ERROR(candidates_->Check(p->seat));
    p->looked = clock_.now();
    return bugs_.ignores_lock ? absl::OkStatus() : p->lock->Check();
  }
  static bool IsDurable(const CoordinatorAction& action) {
    return std::holds_alternative<PersistAction>(action) || std::holds_alternative<RecordAction>(action) ||
           std::holds_alternative<RewindAction>(action);
  }
  absl::Status CarryOut(Process* p, const CoordinatorAction& action) {
    if (p->crash_after >= 0 && p->crash_after-- == 0) {
      TearWhatItWrites(*p, action);
      Crash(p);
      return absl::CancelledError("dead");
    }
    if (p->hang_after >= 0 && IsDurable(action) && p->hang_after-- == 0) {
      if (clock_.Chance(0.5)) {
        p->hangs_before_look = true;  // after it has stored it
      } else {
        Hang(p);
        return absl::CancelledError("stands still");
      }
    }
    const absl::Status done = std::visit([this, p](const auto& a) { return Do(p, a); }, action);
    return p->dead ? absl::CancelledError("dead") : done;
  }
  void TearWhatItWrites(const Process& p, const CoordinatorAction& action) {
    if (IsOfYesterday(&p) || clock_.Chance(0.3)) return;
    if (const auto* record = std::get_if<RecordAction>(&action)) {
      StepMetrics line;
      line.step = record->step;
      line.generation = static_cast<int64_t>(record->generation);
      Disk::Tear(clock_, disk_.run.metrics(), line.ToJson());
    } else if (const auto* persist = std::get_if<PersistAction>(&action)) {
      Disk::Tear(
          clock_, disk_.run.coordinator_state(),
          CoordinatorStateLine({persist->generation, persist->branch, persist->contradicted, persist->contradictions}));
    }
  }

  void Told(const Process& p, const CoordinatorMessage& message) {
    if (p.seat >= 0) candidates_->Speaks(p.seat, p.looked);
    if (const auto* world = std::get_if<WorldMessage>(&message)) truth_.Sent(p.life, *world);
    if (const auto* commit = std::get_if<CommitMessage>(&message)) truth_.SentCommit(*commit);
    if (std::holds_alternative<EndMessage>(message)) {
      truth_.Demand(!IsOfYesterday(&p), "a coordinator that was replaced tells workers that the run is over");
    }
  }
  absl::Status Do(Process* p, const SendAction& action) {
    Told(*p, action.message);
    network_.Down(action.to, action.message);
    return absl::OkStatus();
  }
  absl::Status Do(Process* p, const SendToAllAction& action) {
    Told(*p, action.message);
    // It may die when only some of them have been told.
    std::vector<Connection> to = action.to;
    const bool dies = p->crash_after >= 0 && static_cast<size_t>(p->crash_after) < to.size();
    if (dies) {
      to.resize(static_cast<size_t>(p->crash_after));
    } else if (p->crash_after >= 0) {
      p->crash_after -= static_cast<int>(to.size());
    }
    network_.DownToAll(to, action.message);
    if (dies) Crash(p);
    return absl::OkStatus();
  }
  absl::Status Do(Process*, const CloseAction& action) {
    network_.CloseByServer(action.connection);
    return absl::OkStatus();
  }
  // What a process of yesterday stores is not to reach anybody.
  absl::Status Do(Process* p, const PersistAction& action) {
    if (!IsOfYesterday(p)) {
      if (truth_.WouldGiveUp(action.branch)) rewinding();
      truth_.Persisted(action.generation, action.branch);
    }
    p->persisted = action.branch;
    return p->recorder->Persist({action.generation, action.branch, action.contradicted, action.contradictions});
  }
  absl::Status Do(Process* p, const RecordAction& action) {
    if (!IsOfYesterday(p)) truth_.Recorded(action);
    return p->recorder->Record(action).status();
  }
  absl::Status Do(Process* p, const RewindAction& action) {
    if (!IsOfYesterday(p)) truth_.Rewound(action.step);
    return p->recorder->Rewind(action.step);
  }

  // In the life of this process: its threads die with it, and stand still with it.
  void Later(Process* p, Instant most, std::function<void()> action) {
    clock_.After(clock_.Between(milliseconds(1), most), [this, p, action = std::move(action)]() mutable {
      if (p->dead) return;
      if (p->frozen) {
        p->later.push_back(std::move(action));
      } else {
        action();
      }
    });
  }
  // As elastic/coordinator/checkpoint_keeper.cc does it: the claim is looked at before the long part and after it.
  absl::Status Do(Process* p, const CommitCheckpointAction& action) {
    truth_.CheckCommit(action);
    const Instant most = clock_.Chance(slow_saves) ? Instant(seconds(20)) : Instant(milliseconds(500));
    Later(p, milliseconds(500), [this, p, action, most] {
      CheckpointDoneEvent done{
          action.step, action.generation, Truth::NameOf(action.step, action.generation), "", false, 1, 0, {}};
      FailNow();
      const absl::Status ours = p->fence->GoBack(p->branch).ok() ? p->fence->Check() : p->fence->GoBack(p->branch);
      disk_.storage.ClearFaults();
      done.fenced = absl::IsFailedPrecondition(ours);
      done.cause = std::string(ours.message());
      if (ours.ok() && !p->branch.Includes(action.generation, action.step)) done.cause = "given up";
      Later(p, most, [this, p, done]() mutable {
        if (done.cause.empty()) {
          const absl::Status still_ours = p->fence->Check();
          done.fenced = absl::IsFailedPrecondition(still_ours);
          done.cause = std::string(still_ours.message());
        }
        if (done.cause.empty()) truth_.CheckpointExists(done.step, done.generation);
        Later(p, milliseconds(500), [this, p, done]() mutable {
          done.usable = truth_.Choices();
          Feed(p, done);
          if (done.cause.empty()) ApplyRetentionLater(p);
        });
      });
    });
    return absl::OkStatus();
  }
  void ApplyRetentionLater(Process* p) {
    Later(p, milliseconds(500), [this, p] {
      if (p->fence->GoBack(p->branch).ok() && p->fence->Check().ok()) truth_.ApplyRetention();
      Feed(p, CheckpointsTidiedEvent{"", truth_.Choices()});
    });
  }
  absl::Status Do(Process* p, const VerifyCheckpointAction& action) {
    Later(p, seconds(2), [this, p, name = action.name] {
      const bool damaged = truth_.IsDamaged(name), knows = damaged || clock_.Chance(0.8);
      Feed(p, CheckpointVerifiedEvent{name, damaged ? "wrong digest" : knows ? "" : "connection refused", damaged});
    });
    return absl::OkStatus();
  }
  // What does not exist has no place in the truth.
  absl::Status Do(Process* /*p*/, const MakeRoomAction& /*action*/) { return absl::OkStatus(); }
  // Who starts a coordinator looks at the events first: a run that is over is not started again.
  absl::Status Do(Process* p, const ReportAction& action) {
    if (IsOfYesterday(p)) return absl::OkStatus();  // goes to a file that nobody reads
    ++events_[action.event.index()];
    if (keep_log) log_.push_back(Line(action.event));
    std::visit([this](const auto& e) { Happens(e); }, action.event);
    return absl::OkStatus();
  }
  void Happens(const event::CheckpointRejected& e) {
    truth_.Demand(truth_.IsDamaged(e.name), "checkpoint ", e.name, " is rejected, although it is whole");
  }
  void Happens(const event::CopiesDiffer&) { truth_.FindBad(); }
  void Happens(const event::MirrorsMissing&) { mirrors_missing(); }
  void Happens(const event::StopRequested& e) { stopped_by_ = e.by; }
  template <class Event>
  void Happens(const Event& e) {
    if constexpr (std::is_base_of_v<event::EndFields, Event>) {
      exit_code_ = e.exit_code;
      if (candidates_ != nullptr) candidates_->Stop();
      end_reason_ = e.reason;
    }
  }
  absl::Status Do(Process* p, const EndAction& action) {
    if (IsOfYesterday(p)) return absl::OkStatus();
    truth_.Demand(ended() && *exit_code_ == action.exit_code, "the run ends without having said so");
    return absl::OkStatus();
  }

  std::string Line(const RunEvent& event) const {
    std::string line = absl::StrCat(std::chrono::duration<double>(clock_.now()).count(), " ", EventName(event));
    for (const auto& [key, value] : FieldsOf(event)) {
      absl::StrAppend(&line, " ", key, "=");
      std::visit([&](const auto& v) { absl::StrAppend(&line, v); }, value);
    }
    return line;
  }

 public:
  /// From the next start on the truth is what the disk is to hold: somebody has it go back.
  void HasGoneBack() { goes_back_ = true; }

 private:
  Clock& clock_;
  Network& network_;
  Truth& truth_;
  CoordinatorOptions options_;
  CoordinatorBugs bugs_;
  Disk disk_;
  std::unique_ptr<Candidates> candidates_;           // null: without a lease
  std::vector<std::unique_ptr<Process>> processes_;  // all that ever were; those that are dead do nothing
  Process* now_ = nullptr;                           // of today, or null
  int life_ = 0;
  int64_t replaced_ = 0, refused_ = 0;
  bool goes_back_ = false, is_taken_away_ = false;
  std::array<int64_t, std::variant_size_v<RunEvent>> events_{};  // by kind
  std::optional<int> exit_code_;
  std::string stopped_by_;
  std::string end_reason_;
  std::vector<std::string> log_;
  DecisionDigest digest_;  // if with_digest is set
};

}  // namespace holdfast::sim
