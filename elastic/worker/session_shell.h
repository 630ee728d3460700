#pragma once
// The shell around a WorkerSession: carries messages between its link and the machine, hands tasks to the thread that
// works, sends heartbeats, and ends what that thread is doing when the world has changed.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/control/control_link.h"
#include "elastic/control/worker_session.h"
#include "elastic/worker/peer_probe.h"
#include "framework/base/rare_log.h"
#include "framework/comm/rendezvous.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

using WorkerTask = std::variant<RecoverTask, StepTask, UpdateTask, EndingTask, ForgetTask, ExitTask>;

/// Thread-safety: NextTask, Answer, SetPhase and Exchange from the thread that works; everything else from any.
class SessionShell final : public ControlLinkHandler, public Rendezvous {
 public:
  struct Options {
    Member member;
    RunDigests digests = {};
    int64_t total_steps = 0;
    uint64_t run = 0;  // as WorkerSession has it
    std::chrono::milliseconds heartbeat_interval{200};
    /// Ends the process if the thread that works has not come back so long after it was told to. Of this and the next,
    /// time in which the process was frozen does not count.
    std::chrono::milliseconds kill_timeout{120'000};
    /// As SessionDeserted has it.
    std::chrono::milliseconds coordinator_timeout{3'600'000};
    bool is_alone = false;  // nobody else ends this process
  };

  /// `link` and `progress` must outlive the shell.
  /// `probe`: what other workers try to reach; null = nothing does.
  SessionShell(const Options& options, ControlLink& link, const StepProgress& progress,
               std::unique_ptr<PeerProbe> probe = nullptr);
  ~SessionShell() override;

  /// Waits for the next task that is not of a world gone by. Its stop token is requested when it has to end.
  struct Next {
    WorkerTask task;
    std::stop_token stop;
    double abort_seconds = 0;  // of a RecoverTask: since the task before it was to end
  };
  Next NextTask();
  void Answer(const SessionEvent& event);

  void SetPhase(Phase phase, int64_t step);
  /// As heartbeats say it: reduce while it waits for other ranks.
  Phase phase() const;
  void Send(const WorkerMessage& message) { link_.Send(message); }
  /// From any thread.
  void MirrorsFilled(uint64_t generation) { Feed(holdfast::MirrorsFilled{generation}); }
  void AskForStop(int signal);
  Member member() const;

  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override;

  void OnConnected() override { Feed(SessionConnected{}); }
  void OnMessage(const CoordinatorMessage& message) override;
  void OnDisconnected(const std::string& reason) override;

 private:
  void Feed(const SessionEvent& event);
  void FeedLocked(const SessionEvent& event);
  void SayIfItWaits() const;
  bool IsOverdue() const;
  void Beat(const std::stop_token& stop);

  Options options_;
  ControlLink& link_;
  const StepProgress& progress_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  WorkerSession session_;
  std::deque<WorkerTask> tasks_;
  std::stop_source stop_;    // of the world we are in
  uint64_t recovering_ = 0;  // generation of the last RecoverTask handed out
  PeersMessage peers_;       // the latest
  Phase phase_ = Phase::kStarting;
  int64_t step_ = 0;
  uint64_t phase_changes_ = 0;
  std::string refusal_;  // the last one
  RareLog refusals_;
  std::optional<std::chrono::steady_clock::time_point> alone_since_;    // while no coordinator has it
  std::optional<std::chrono::steady_clock::time_point> working_since_;  // while a task is at work
  std::optional<std::chrono::steady_clock::time_point> abort_since_;    // while a task is to end

  std::unique_ptr<PeerProbe> probe_;
  std::jthread heartbeats_;
};

}  // namespace holdfast
