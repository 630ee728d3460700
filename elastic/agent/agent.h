#pragma once
// Starts the worker processes of one machine, watches them, starts them again when they fail. Nothing outlives it: a
// worker is killed by the kernel when the agent's process ends, however it ends.
//
// Example:
//   Agent agent({.max_restarts = 100}, {worker0, worker1}, [](const WorkerExit& exit) { ... });
//   ...
//   agent.Stop(SIGTERM, std::chrono::seconds(10));

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "elastic/agent/child_process.h"

namespace holdfast {

/// The environment variable that gives each worker process a number of its own, from which it may count up.
inline constexpr const char* kIncarnationVariable = "HOLDFAST_INCARNATION";
/// The one that tells it the number of the run that it belongs to, or, while the agent does not know that, that it
/// comes as a line on standard input.
inline constexpr const char* kRunVariable = "HOLDFAST_RUN_ID";
inline constexpr const char* kRunOnInput = "input";

/// Ends a worker's process that has not begun to join: from then on it ignores this one, as it hears of the run's end.
inline constexpr int kEndsBeforeJoining = SIGUSR2;

/// How a worker ends that was told that the run has failed. (0: done; 128 + signal: stopped.)
inline constexpr int kRunFailedExit = 3;

/// A worker's process has ended.
struct WorkerExit {
  std::string name;
  uint64_t incarnation = 0;  // as the process was told in kIncarnationVariable
  std::string cause;         // "killed by signal 9 (Killed)", "exit code 1: <the last line of its log>"
  int exit_code = 0;         // 128 + signal if it was killed
  bool killed = false;       // by a signal
  bool stopped = false;      // by one that the agent sent
  bool restarting = false;   // else it is done, or given up
};

/// Thread-safe.
class Agent {
 public:
  struct Options {
    int64_t max_restarts = 100;  // of each worker
    std::chrono::milliseconds first_backoff{100};
    std::chrono::milliseconds max_backoff{30'000};
    std::chrono::milliseconds short_life{5'000};  // who dies sooner is started again with backoff
    /// The run's number, 0 = not known yet; asked as on_exit is called, at each start and until it is known.
    std::function<uint64_t()> run = nullptr;
  };

  /// Starts all `workers`. `on_exit` is called by the agent's thread, soon after each exit; it must not call the agent.
  Agent(const Options& options, std::vector<ChildCommand> workers, std::function<void(const WorkerExit&)> on_exit);
  /// Kills what still runs.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Waits until every worker is done or given up. False when the time is up first.
  bool WaitUntilAllEnded(std::chrono::milliseconds timeout);
  /// Sends `signal` to all, waking the frozen, and returns. Nobody is started again.
  void Ask(int signal);
  /// Sends kEndsBeforeJoining to all, and returns. Nobody is started again.
  void EndThoseNotJoined();
  /// As Ask for a run that is over: the frozen would wake to nobody, and are killed at once, and those that are left
  /// after `grace` as well. Returns when none is left.
  void Stop(int signal, std::chrono::milliseconds grace);

 private:
  using Clock = std::chrono::steady_clock;

  struct Worker {
    ChildCommand command;
    uint64_t incarnation = 0;
    std::optional<ChildProcess> process;
    bool awaits_run = false;  // was not told its number
    std::optional<Clock::time_point> restart_at;
    Clock::time_point started;
    int64_t restarts = 0, short_lives = 0;
  };

  void Supervise();
  void WaitForSomething();
  void StartWorker(Worker& worker);
  void TellRun(Worker& worker);
  void Reap(Worker& worker);
  void SignalAll(int signal, bool wakes);
  void HandleExit(Worker& worker, int wait_status);
  /// None for the first restart after a life of some length, then doubling.
  std::chrono::milliseconds Backoff(Worker& worker) const;
  bool AllEnded() const;
  void Wake() const;

  const Options options_;
  std::function<void(const WorkerExit&)> on_exit_;
  int wake_fd_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::vector<Worker> workers_;
  bool stopping_ = false, done_ = false;
  int stop_signal_ = 0;  // the last one

  std::thread thread_;  // of all forks: the kernel ties a child's life to the thread that forked it
};

}  // namespace holdfast
