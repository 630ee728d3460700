#pragma once
// Alerts of one run: from its events to Slack and PagerDuty.

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/alerts/alert_sender.h"
#include "elastic/alerts/incident_tracker.h"
#include "elastic/coordinator/run_observer.h"
#include "framework/config/config.h"

namespace holdfast {

/// Thread-safe.
class RunAlerts final : public RunObserver {
 public:
  /// Reads the secrets that the config names; none: OnEvent does nothing. `on_failure` hears of what could not be
  /// delivered, from a thread of its own, until Close has returned.
  static absl::StatusOr<std::unique_ptr<RunAlerts>> Create(const Config& config, const RunDirectory& directory,
                                                           std::function<void(const RunEvent&)> on_failure);

  void OnStep(const StepMetrics& step) override;
  void OnEvent(const RunEvent& event) override;
  void OnStatus(const RunStatus& status) override;
  /// Delivers what is queued, for some seconds at most; later events are not looked at.
  void Close() override;

 private:
  explicit RunAlerts(AlertedRun run) : incidents_(std::move(run)) {}
  void SendAll(const std::vector<Alert>& alerts);  // under mutex_

  std::mutex mutex_;
  // Under mutex_:
  IncidentTracker incidents_;
  std::unique_ptr<AlertSender> sender_;
};

}  // namespace holdfast
