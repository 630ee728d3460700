#pragma once
// The shell around a Coordinator: gives it the time, carries its messages, writes down what it decides.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "elastic/coordinator/checkpoint_keeper.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_recorder.h"
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
};

/// What an earlier coordinator of the run left in its directory; zeros for a new run.
struct CoordinatorHistory {
  CoordinatorState state;
  int64_t recorded_step = 0;     // the last one that counts; what stands after it was given up
  bool finished = false;         // all is done, or failed for good
  bool has_saved = false;        // a checkpoint
  bool workers_are_new = false;  // as CoordinatorOptions has it
  UsedCells used_cells = {};     // the same
};
absl::StatusOr<CoordinatorHistory> ReadCoordinatorHistory(const RunDirectory& directory);

/// What cannot be written down does not happen. If it can be later (a full disk), the run is paused: the action is
/// tried again and again, what workers say meanwhile waits, and a stop ends the run. Else the run fails, and everybody
/// is told. Thread-safe.
class CoordinatorShell {
 public:
  /// `config`, `directory` and `port` must outlive the shell. `flops_per_token`: what model FLOPs utilisation counts.
  /// `on_event` hears of every event (alerts). `keeper` may be null: no checkpoints. `usable`: those to go on from,
  /// newest first.
  static absl::StatusOr<std::unique_ptr<CoordinatorShell>> Create(const Config& config, const RunDirectory& directory,
                                                                  const CoordinatorHistory& history,
                                                                  double flops_per_token, CoordinatorPort& port,
                                                                  std::function<void(const RunEvent&)> on_event,
                                                                  CheckpointKeeper* keeper = nullptr,
                                                                  std::vector<CheckpointChoice> usable = {});
  ~CoordinatorShell();

  // These return at once: what is said waits in a queue while something is written down, heartbeats in one place each.
  void OnMessage(Connection from, const WorkerMessage& message);
  void OnDisconnect(Connection connection, const std::string& cause) { Put(DisconnectEvent{connection, cause}); }
  void RequestStop(int signal) { Put(StopEvent{signal}); }
  /// Returns when everything said before has been dealt with.
  void Drain() { inbox_.Drain(); }
  /// An event from outside the coordinator (an alert that failed).
  void Report(const RunEvent& event);
  RunStatus StatusNow() const;

  /// Waits for the end of the run.
  struct Outcome {
    int exit_code = 0;
    std::string reason;
    int64_t steps = 0;
    std::optional<double> validation_loss;
  };
  Outcome Wait();

 private:
  CoordinatorShell(const Config& config, const RunDirectory& directory, const CoordinatorOptions& options,
                   std::unique_ptr<RunRecorder> recorder, CoordinatorPort& port,
                   std::function<void(const RunEvent&)> on_event, CheckpointKeeper* keeper);
  void Put(CoordinatorEvent event);
  /// For the keeper, which deletes nothing before it is known what there is.
  void PutAndWait(const CoordinatorEvent& event);
  void Feed(const CoordinatorEvent& event);
  void SayThatItIsOver(const CoordinatorEvent& event);
  void TakeIn(const CoordinatorEvent& event);
  void CarryOut();
  void Pause(const absl::Status& status);
  void PutOff(const CoordinatorEvent& event);
  void GiveUp(const std::string& reason);
  absl::Status Do(const CoordinatorAction& action);
  void Say(const RunEvent& event);
  void End(int exit_code, const std::string& reason);
  void Tick(const std::stop_token& stop);

  const RunDirectory& directory_;
  CoordinatorPort& port_;
  std::function<void(const RunEvent&)> on_event_;
  CheckpointKeeper* keeper_;
  std::chrono::milliseconds tick_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  Coordinator coordinator_;
  std::unique_ptr<RunRecorder> recorder_;
  std::deque<CoordinatorAction> actions_;  // to be carried out; between two events only while the run is paused
  std::deque<CoordinatorEvent> put_off_;   // while it is paused
  std::optional<Instant> paused_since_;
  std::string pause_cause_;
  std::optional<Outcome> outcome_;

  static constexpr int kMostEvents = 1 << 16;  // in the inbox, heartbeats and ticks aside: whoever says more waits
  std::counting_semaphore<kMostEvents> room_{kMostEvents};
  std::mutex beats_mutex_;
  std::map<Connection, HeartbeatMessage> beats_;  // under beats_mutex_: the last of each, if it waits in the inbox
  std::atomic<bool> tick_waits_ = false;
  TaskThread inbox_;
  std::jthread ticker_;
};

}  // namespace holdfast
