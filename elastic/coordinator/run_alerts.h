#pragma once
// Alerts of one run: from its events to Slack and PagerDuty.

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/alerts/alert_sender.h"
#include "elastic/alerts/incident_tracker.h"
#include "framework/config/config.h"

namespace holdfast {

/// Thread-safe.
class RunAlerts {
 public:
  /// Reads the secrets that the config names; none: OnEvent does nothing. `on_failure` hears of what could not be
  /// delivered, from a thread of its own, until Finish has returned.
  static absl::StatusOr<std::unique_ptr<RunAlerts>> Create(const Config& config,
                                                           std::function<void(const RunEvent&)> on_failure);

  void OnEvent(const RunEvent& event);
  /// Delivers what is queued, for some seconds at most; later events are not looked at.
  void Finish();

 private:
  explicit RunAlerts(const std::string& run_name) : incidents_(run_name) {}

  std::mutex mutex_;
  // Under mutex_:
  IncidentTracker incidents_;
  std::unique_ptr<AlertSender> sender_;
};

}  // namespace holdfast
