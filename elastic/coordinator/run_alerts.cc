#include "elastic/coordinator/run_alerts.h"

#include <chrono>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<RunAlerts>> RunAlerts::Create(const Config& config, const RunDirectory& directory,
                                                             std::function<void(const RunEvent&)> on_failure) {
  std::unique_ptr<RunAlerts> alerts(new RunAlerts({.name = config.run.name,
                                                   .directory = directory.root(),
                                                   .workers = config.elastic.workers,
                                                   .total_steps = config.train.steps}));
  const AlertsConfig& files = config.alerts;
  if (files.slack_webhook_file.empty() && files.pagerduty_key_file.empty()) return alerts;
  ASSIGN_OR_RETURN(AlertOptions options, ReadAlertOptions(files.slack_webhook_file, files.pagerduty_key_file));
  options.on_failure = [on_failure = std::move(on_failure)](const std::string& problem) {
    on_failure(event::AlertFailed{problem});
  };
  alerts->sender_ = std::make_unique<AlertSender>(options);
  return alerts;
}

void RunAlerts::SendAll(const std::vector<Alert>& alerts) {
  if (sender_ == nullptr) return;
  for (const Alert& alert : alerts) sender_->Send(alert);
}

void RunAlerts::OnStep(const StepMetrics& step) {
  const std::lock_guard lock(mutex_);
  incidents_.OnStep(step.step, step.tokens);
}

void RunAlerts::OnEvent(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  SendAll(incidents_.OnEvent(std::chrono::steady_clock::now(), event));
}

void RunAlerts::OnStatus(const RunStatus&) {
  const std::lock_guard lock(mutex_);
  SendAll(incidents_.OnTime(std::chrono::steady_clock::now()));
}

void RunAlerts::Close() {
  std::unique_ptr<AlertSender> last;
  {
    const std::lock_guard lock(mutex_);
    SendAll(incidents_.Close());
    last = std::move(sender_);
  }
}

}  // namespace holdfast
