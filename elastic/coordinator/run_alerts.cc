#include "elastic/coordinator/run_alerts.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<RunAlerts>> RunAlerts::Create(const Config& config,
                                                             std::function<void(const RunEvent&)> on_failure) {
  std::unique_ptr<RunAlerts> alerts(new RunAlerts(config.run.name));
  const AlertsConfig& files = config.alerts;
  if (files.slack_webhook_file.empty() && files.pagerduty_key_file.empty()) return alerts;
  ASSIGN_OR_RETURN(AlertOptions options, ReadAlertOptions(files.slack_webhook_file, files.pagerduty_key_file));
  options.on_failure = [on_failure = std::move(on_failure)](const std::string& problem) {
    on_failure(event::AlertFailed{problem});
  };
  alerts->sender_ = std::make_unique<AlertSender>(options);
  return alerts;
}

void RunAlerts::OnEvent(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  if (sender_ == nullptr) return;
  for (const Alert& alert : incidents_.OnEvent(event)) sender_->Send(alert);
}

void RunAlerts::Close() {
  std::unique_ptr<AlertSender> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(sender_);
  }
}

}  // namespace holdfast
