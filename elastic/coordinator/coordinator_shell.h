#pragma once
// The shell around a Coordinator: gives it the time, carries its messages, writes down what it decides.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/action_queue.h"
#include "elastic/coordinator/checkpoint_keeper.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_observer.h"
#include "elastic/coordinator/run_recorder.h"
#include "elastic/coordinator/run_tally.h"
#include "framework/base/task_thread.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

/// Carries messages to workers. Called in order, by one thread at a time; must not call back.
class CoordinatorPort {
 public:
  virtual ~CoordinatorPort() = default;
  virtual void Send(Connection to, const CoordinatorMessage& message) = 0;
  virtual void SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message) {
    for (const Connection connection : to) Send(connection, message);
  }
  virtual void Close(Connection connection) = 0;
  /// Another coordinator has the run now: nothing more is said to workers, who are to ask that one.
  virtual void Leave() {}
};

/// What an earlier coordinator of the run left in its directory; zeros for a new run.
struct CoordinatorHistory {
  uint64_t run = 0;  // RunIdOf the directory; 0 = not known
  CoordinatorState state;
  int64_t recorded_step = 0;                       // the last one that counts; what stands after it was given up
  int64_t agreed_step = 0;                         // as CoordinatorOptions has it
  uint64_t agreed_digest = 0;                      // the same
  std::vector<ValidationResult> validations = {};  // recorded up to that step
  bool finished = false;                           // the last it said was that all is done, or failed for good
  int64_t validations_since_best = 0;              // where it ended early, as TrainConfig has it; else 0
  bool has_saved = false;                          // a checkpoint
  bool workers_are_new = false;                    // as CoordinatorOptions has it
  UsedCells used_cells = {};                       // the same
  RunTally tally = {};                             // of its events
  double worker_seconds = 0;                       // of the members of its worlds, in the steps that count
};
absl::StatusOr<CoordinatorHistory> ReadCoordinatorHistory(const RunDirectory& directory);

/// Nothing is left to do: all steps, or those up to an early end that this config wants, too.
bool IsDone(const Config& config, const CoordinatorHistory& history);

/// What a coordinator starts from.
struct RunStart {
  CoordinatorHistory history;
  ActionQueue::IsOurs is_ours;  // RunLock::Check
  FlopsPerToken flops_per_token = nullptr;
  CheckpointKeeper* keeper = nullptr;    // null = no checkpoints
  std::vector<CheckpointChoice> usable;  // those to resume from, newest first
  std::string leader{};                  // as RunStatus has it
  int64_t data_tokens = 0;               // as event::RunStarted has it
};

/// What cannot be written does not happen. If it may be possible later (a full disk), the run is paused: the action is
/// tried again and again, messages of workers wait, and a stop waits for lost_state_timeout_ms before it ends the run.
/// Else the run fails, and all workers are told. If another coordinator has taken the run over (action_queue.h), this
/// one ends and tells nobody. Thread-safe.
class CoordinatorShell {
 public:
  /// `config`, `directory`, `port`, the observers and what `start` points to must outlive the shell.
  static absl::StatusOr<std::unique_ptr<CoordinatorShell>> Create(const Config& config, const RunDirectory& directory,
                                                                  const RunStart& start, CoordinatorPort& port,
                                                                  std::vector<RunObserver*> observers);
  ~CoordinatorShell();

  // These return at once: while something is written events wait in a queue, and of each worker its last heartbeat.
  void OnMessage(Connection from, const WorkerMessage& message);
  void OnDisconnect(Connection connection, const std::string& cause) { Put(DisconnectEvent{connection, cause}); }
  void RequestStop(int signal) { Put(StopEvent{signal}); }
  /// The run fails.
  void GiveUpRun(const std::string& reason) { Put(GiveUpEvent{reason}); }
  /// The run is left to another coordinator: this one ends, with 128 + signal, and tells workers nothing.
  void MakeWay(int signal);
  /// Returns when everything said before has been dealt with.
  void Drain() { inbox_.Drain(); }
  /// An event from outside the coordinator (an alert that failed). Not to be called by an observer's On... functions.
  void Report(const RunEvent& event);
  RunStatus StatusNow() const;

  /// Waits for the end of the run.
  struct Outcome {
    int exit_code = 0;
    std::string reason;
    int64_t steps = 0;
    std::optional<double> validation_loss;
    bool goes_on = false;  // the run: another coordinator has it, or is to take it over
    bool is_said = false;  // by an event; a run that was done before had its event then
  };
  Outcome Wait();
  /// The same, or nothing, if `stop` is requested before.
  std::optional<Outcome> Wait(const std::stop_token& stop);

 private:
  CoordinatorShell(const Config& config, const CoordinatorOptions& options, std::unique_ptr<RunRecorder> recorder,
                   CoordinatorPort& port, const RunStart& start, std::vector<RunObserver*> observers);
  void Put(CoordinatorEvent event);
  /// Put, and waits until it is dealt with: the keeper deletes nothing before the coordinator knows what it answers.
  void PutAndWait(const CoordinatorEvent& event);
  void Feed(const CoordinatorEvent& event);
  void SayThatItIsOver(const CoordinatorEvent& event);
  void TakeIn(const CoordinatorEvent& event);
  void CarryOut();
  void Pause(const absl::Status& status);
  void PutOff(const CoordinatorEvent& event);
  void ForgetWhoCameAndWent();
  void GiveUpIfStopped();
  void GiveUpPaused();
  void GiveUp(const std::string& reason);
  void Leave(int exit_code, const std::string& reason);
  absl::Status Do(const CoordinatorAction& action);
  void Say(const RunEvent& event);
  RunStatus StatusLocked() const;
  void End(int exit_code, const std::string& reason, bool goes_on = false);
  void Tick(const std::stop_token& stop);

  CoordinatorPort& port_;
  const std::vector<RunObserver*> observers_;  // called under mutex_
  CheckpointKeeper* keeper_;
  std::chrono::milliseconds tick_, stop_timeout_;
  const std::string run_, leader_;  // its name; as RunStatus has it
  const int64_t wanted_workers_;
  const bool was_done_;  // when this began

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  Coordinator coordinator_;
  std::unique_ptr<RunRecorder> recorder_;
  Branch branch_;               // as it was persisted last
  bool branch_is_news_ = true;  // for the keeper
  Instant last_status_{0};      // that observers were told
  RunTally tally_;
  std::optional<double> validation_loss_;
  ActionQueue actions_;                   // between two events there are some only while the run is paused
  std::deque<CoordinatorEvent> put_off_;  // while it is paused
  Connection newest_ = 0;                 // the highest number of those that coordinator_ knows of
  std::optional<Instant> paused_since_;
  std::string pause_cause_;
  std::optional<std::pair<Instant, int>> stop_;  // the first that was asked for: when, signal
  std::optional<Outcome> outcome_;

  static constexpr int kMaxEvents = 1 << 16;  // in the inbox, heartbeats and ticks aside; then Put waits
  std::counting_semaphore<kMaxEvents> room_{kMaxEvents};
  std::mutex beats_mutex_;
  std::map<Connection, HeartbeatMessage> beats_;  // under beats_mutex_: the last of each, if it waits in the inbox
  std::atomic<bool> tick_waits_ = false;
  TaskThread inbox_;
  std::jthread ticker_;
};

}  // namespace holdfast
