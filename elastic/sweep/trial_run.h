#pragma once
// The processes of a trial: `holdfast coordinator`, and a `holdfast agent` with one worker for each of its share of the
// sweep's workers. A share that grows is one more agent, which the coordinator takes into the world; one that shrinks
// is an agent that is told to leave. No bit of the run depends on either.
//
// On another host an agent is started by the host's command. What it is a child of here may only be the end of a line
// (ssh), and signals do not go through those; the end of its input does, and it leaves then (--while-stdin-open), also
// when this process is killed.
//
// Nothing is waited for: Tick looks after what has happened since. Thread-safety: none; one thread for all calls, which
// the kernel ties the processes' lives to.

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/agent/child_process.h"
#include "elastic/sweep/host_health.h"
#include "elastic/sweep/host_slots.h"
#include "elastic/sweep/sweep_config.h"
#include "elastic/sweep/worker_ends.h"
#include "elastic/sweep/worker_share.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

class TrialRun {
 public:
  struct Options {
    std::string binary = "/proc/self/exe";
    std::string listen;
    std::vector<SweepHost> hosts;
    HostHealth* health = nullptr;  // must outlive it, as `slots`
    HostSlots* slots = nullptr;
  };
  struct End {
    int exit_code = 0;  // of the coordinator: above 128 if the run was stopped, EXIT_FAILURE if it was given up
    std::string cause;  // why, where it is no success
  };

  /// `config`: resolved, with train.steps where the run is to end. Takes up the run that is in `directory`.
  TrialRun(const Config& config, RunDirectory directory, Options options);

  /// By host; one at least.
  absl::Status Start(const WorkersByHost& workers);
  void SetWorkers(const WorkersByHost& workers) { wanted_ = workers; }
  /// Saves and ends: `end` says 128 + SIGTERM then.
  void Stop();
  void Tick();
  /// The coordinator has ended, and is not started again.
  const std::optional<End>& end() const { return end_; }
  /// Whether processes are left, which go by themselves once the run has ended.
  bool gone() const { return !coordinator_.has_value() && agents_.empty(); }
  const WorkersByHost& workers() const { return wanted_; }
  const RunDirectory& directory() const { return directory_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Looks at a process now and then, and says when it has been frozen for long.
  class FrozenWatch {
   public:
    bool IsFrozenFor(const ChildProcess& process, std::chrono::milliseconds duration);

   private:
    Clock::time_point next_{};
    int64_t looks_ = 0;  // at which it was, one after the other
  };

  struct Agent {
    size_t host = 0;
    std::string node;
    int64_t slot = 0;  // on the host
    ChildProcess process;
    Clock::time_point began;
    std::optional<Clock::time_point> leaves_since;
    FrozenWatch watch = {};
  };

  absl::Status StartCoordinator();
  absl::Status StartAgent(size_t host);
  static absl::StatusOr<ChildProcess> StartOn(const SweepHost& host, ChildCommand command, int64_t slot);
  void TellToLeave(Agent& agent) const;
  void OnAgentEnd(const Agent& agent, int wait_status);
  void LookAfterCoordinator();
  void KillFrozenCoordinator();
  void KillIfFrozen(Agent& agent) const;
  void LookAfterAgents();
  void LookAtEvents();
  void SayPause();
  void GiveUpIfWorkersCannotLive();
  void GiveUp(const std::string& why);
  void TakeEnd(int wait_status);
  ChildCommand CommandOf(const char* command, const std::string& log) const;

  Config config_;
  const RunDirectory directory_;
  const Options options_;
  std::optional<ChildProcess> coordinator_;
  std::string address_;  // of the coordinator; empty until it listens
  std::list<Agent> agents_;
  std::string why_agent_ended_;  // of one here that was to stay
  int64_t short_lives_ = 0;      // of agents here, one after the other, that could not begin
  WorkersByHost wanted_;
  int64_t lost_coordinators_ = 0;
  WorkerEnds ends_;
  std::optional<std::string> given_up_;  // why
  bool stopping_ = false, said_pause_ = false;
  std::optional<Clock::time_point> ended_at_, next_agent_at_;
  Clock::time_point next_look_{};  // at how workers have ended
  FrozenWatch coordinator_watch_;
  std::optional<End> end_;
};

}  // namespace holdfast
