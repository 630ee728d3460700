#pragma once
// The alert that no coordinator leads a run: nobody but the agents is left to tell of it.
//
// The one agent that first makes the file coordinator.absent in the run directory tells of the incident; when a
// coordinator answers again, the one that takes the file away tells that it is over. So there is one of each, also
// where the run was ended and begun again meanwhile. Agents that do not share the directory tell of it each; the key is
// the same, so PagerDuty makes one incident of them.
//
// Example, once a second:
//   CoordinatorAlarm alarm(config, directory, [&] { return RunLock::Read(directory); }, options);
//   alarm.Look(agent.AloneFor());

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "elastic/alerts/alert_sender.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"

namespace holdfast {

/// Thread-safety: none.
class CoordinatorAlarm {
 public:
  /// `config` and `directory` must outlive it. `read_lead`: what the coordinator that leads says in the run's lease.
  CoordinatorAlarm(const Config& config, const RunDirectory& directory,
                   std::function<absl::StatusOr<LockText>()> read_lead, const AlertOptions& options)
      : config_(config), directory_(directory), read_lead_(std::move(read_lead)), sender_(options) {}

  /// No coordinator has answered this agent for so long; 0: one does.
  void Look(std::chrono::milliseconds alone_for);

 private:
  using Clock = std::chrono::steady_clock;

  /// One that cannot be reached from here tells of this host itself.
  bool SomebodyLeads();
  void Tell(std::chrono::milliseconds alone_for);
  void TellThatItIsOver();
  Alert Make(Alert::Action action, const std::string& what) const;

  const Config& config_;
  const RunDirectory& directory_;
  std::function<absl::StatusOr<LockText>()> read_lead_;
  bool was_alone_ = true, has_told_ = false;
  LockText lead_;
  Clock::time_point lead_said_something_;
  AlertSender sender_;
};

}  // namespace holdfast
