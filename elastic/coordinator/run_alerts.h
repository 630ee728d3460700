#pragma once
// Alerts of one run: from its events to Slack and PagerDuty.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/alerts/alert_sender.h"
#include "elastic/alerts/incident_tracker.h"
#include "elastic/coordinator/run_observer.h"
#include "framework/config/config.h"

namespace holdfast {

/// Of which run alerts are to tell, as far as the config says.
AlertedRun AlertedRunOf(const Config& config, const RunDirectory& directory);

/// Whether the secrets that the config names can be read.
absl::Status CheckAlerts(const AlertsConfig& files);

/// Thread-safe.
class RunAlerts final : public RunObserver {
 public:
  /// Reads the secrets that the config names; none: OnEvent does nothing. `worker_seconds`: of earlier lives of the
  /// run. `on_failure` is told what could not be delivered, from a thread of its own, until Close has returned.
  static absl::StatusOr<std::unique_ptr<RunAlerts>> Create(const Config& config, const RunDirectory& directory,
                                                           double worker_seconds,
                                                           std::function<void(const RunEvent&)> on_failure);

  /// With null as the sender nobody is told.
  RunAlerts(AlertedRun run, double worker_seconds, std::unique_ptr<AlertSender> sender)
      : incidents_(std::move(run)), worker_seconds_(worker_seconds), sender_(std::move(sender)) {}

  void OnStep(const StepMetrics& step) override;
  void OnEvent(const RunEvent& event) override;
  void OnStatus(const RunStatus& status) override;
  /// Delivers what is queued, for 30 s at most, or for 5 s if somebody wants the run to stop or this coordinator to
  /// make way; later events are not looked at.
  void Close() override;

 private:
  void SendAll(const std::vector<Alert>& alerts);  // under mutex_

  std::mutex mutex_;
  // Under mutex_:
  IncidentTracker incidents_;
  double worker_seconds_;
  std::optional<IncidentTracker::Time> last_status_;
  bool is_told_to_stop_ = false, has_time_ = false;  // the run has ended by itself
  std::unique_ptr<AlertSender> sender_;
};

}  // namespace holdfast
