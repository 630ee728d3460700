#pragma once
// An agent and its line to the coordinator: starts the workers of this machine, reports their exits, and ends when the
// run does. An agent that is stopped leaves the run, and the others go on without its machine. Where there are no
// others, or where the whole run is being stopped (a scheduler sends its signal to everybody), it stays for the end.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/agent/agent.h"
#include "elastic/agent/worker_commands.h"
#include "elastic/control/control_link.h"
#include "elastic/control/run_status.h"
#include "framework/base/freeze_watch.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// What an agent does that was asked to stop some time ago.
enum class Departure {
  kWait,     // looks again soon
  kLeave,    // asks to be let go; the run continues without its workers
  kStopRun,  // there is nobody to leave the run to: has the run stopped, and stays for its end
  kStay,     // the run is ending: stays for its end
};
/// `saves`: the run writes checkpoints, so that it may be left to a node whose workers are only being started.
Departure DecideDeparture(const absl::StatusOr<RunStatus>& run, const std::string& node, bool saves,
                          std::chrono::milliseconds since_signal);

/// How long ago an agent was asked to stop, without the time in which it was frozen. Thread-safety: none.
class SinceSignal {
 public:
  using Clock = FreezeWatch::Clock;
  /// `interval`: from one look to the next.
  SinceSignal(Clock::time_point now, Clock::duration interval) : freezes_(now, interval), since_(now) {}
  /// What a look shows.
  std::chrono::milliseconds At(Clock::time_point now) {
    freezes_.Look(now, {&since_});
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - *since_);
  }
  /// As if it were asked now.
  void Restart(Clock::time_point now) {
    freezes_.Look(now, {});
    since_ = now;
  }

 private:
  FreezeWatch freezes_;
  FreezeWatch::Since since_;
};

/// Whether a run that is being left gets on, or saves its end, which takes as long as it takes. Thread-safety: none.
class LeaveWatch {
 public:
  using Clock = FreezeWatch::Clock;
  /// `interval`: from one look to the next.
  LeaveWatch(Clock::time_point now, Clock::duration limit, Clock::duration interval)
      : limit_(limit), freezes_(now, interval), since_(now) {}
  /// What a look has shown. False: nothing has got on for the limit, in which this process was not frozen.
  bool GetsOn(Clock::time_point now, const absl::StatusOr<RunStatus>& run);

 private:
  const Clock::duration limit_;
  FreezeWatch freezes_;
  FreezeWatch::Since since_;  // it got on
  int64_t committed_step_ = 0;
  uint64_t generation_ = 0;
};

class AgentShell final : public ControlLinkHandler {
 public:
  using LookFn = std::function<absl::StatusOr<RunStatus>()>;

  /// Starts the workers, whose logs go into directory.logs(), which exists. `config`, `directory` and `link` must
  /// outlive it. `look` asks the coordinator for the state of the run; needed where Stop is called.
  AgentShell(const Config& config, const RunDirectory& directory, const AgentSettings& settings, ControlLink& link,
             LookFn look = nullptr);
  ~AgentShell() override;

  /// Waits for the end of the run, for all workers to be given up, or for elastic.coordinator_timeout_ms without a
  /// coordinator of the run; then for the workers to be gone. Exit code and reason.
  EndMessage Wait();
  /// Workers that run or are started again.
  int64_t NumRunning();
  /// Makes Wait return soon, with 128 + signal; see above.
  void Stop(int signal);
  /// No coordinator of the run has answered for so long; 0: one does.
  std::chrono::milliseconds AloneFor();

  void OnConnected() override;
  void OnMessage(const CoordinatorMessage& message) override;
  void OnDisconnected(const std::string& reason) override;

 private:
  void OnExit(const WorkerExit& exit);
  void Depart(int signal);
  void Leave(int signal);
  /// For the time that there may be; of that in which this process was frozen nothing counts.
  bool LostCoordinator();
  bool Ended(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds timeout);
  EndMessage Alone() const;
  bool AwaitEnd(int64_t connections);

  const std::chrono::milliseconds coordinator_timeout_, progress_timeout_;  // of a run that this node leaves
  const bool run_saves_;                                                    // checkpoints
  AgentSettings settings_;
  const uint64_t instance_;
  ControlLink& link_;
  const LookFn look_;
  std::atomic<int64_t> connections_ = 0;  // so far
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::optional<EndMessage> end_;
  int64_t running_;
  FreezeWatch::Since alone_since_ = FreezeWatch::Clock::now();
  FreezeWatch freezes_;
  int last_exit_code_ = 0, stop_signal_ = 0;
  bool leaving_ = false;  // has asked to be let go
  bool was_connected_ = false;
  uint64_t run_ = 0;             // WelcomeMessage::run; 0 = not known yet
  std::string other_run_;        // what a coordinator of another run has said, while no other one has answered
  bool refused_ = false;         // another agent has the name of this node
  bool told_by_worker_ = false;  // the last worker ended as it was told to, by the end of the run

  std::unique_ptr<Agent> agent_;
};

/// The name of this machine as a failure domain: SLURM_NODEID, else the host name.
std::string DefaultNode();

}  // namespace holdfast
