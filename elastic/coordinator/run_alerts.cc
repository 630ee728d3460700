#include "elastic/coordinator/run_alerts.h"

#include <chrono>
#include <variant>

#include "framework/base/status.h"

namespace holdfast {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30}, kHaste{5};  // with services that do not answer, at the end
constexpr double kSecondsPerHour = 3600;

}  // namespace

AlertedRun AlertedRunOf(const Config& config, const RunDirectory& directory) {
  return {.name = config.run.name,
          .directory = directory.root(),
          .workers = config.elastic.workers,
          .total_steps = config.train.steps,
          .on_gpus = config.train.device == DeviceKind::kCuda,
          .price_per_hour = config.alerts.price_per_hour};
}

absl::Status CheckAlerts(const AlertsConfig& files) {
  if (files.slack_webhook_file.empty() && files.pagerduty_key_file.empty()) return absl::OkStatus();
  return ReadAlertOptions(files.slack_webhook_file, files.pagerduty_key_file).status();
}

absl::StatusOr<std::unique_ptr<RunAlerts>> RunAlerts::Create(const Config& config, const RunDirectory& directory,
                                                             double worker_seconds,
                                                             std::function<void(const RunEvent&)> on_failure) {
  const AlertsConfig& files = config.alerts;
  std::unique_ptr<AlertSender> sender;
  if (!files.slack_webhook_file.empty() || !files.pagerduty_key_file.empty()) {
    ASSIGN_OR_RETURN(AlertOptions options, ReadAlertOptions(files.slack_webhook_file, files.pagerduty_key_file));
    options.on_failure = [on_failure = std::move(on_failure)](const std::string& problem) {
      on_failure(event::AlertFailed{problem});
    };
    sender = std::make_unique<AlertSender>(options);
  }
  return std::make_unique<RunAlerts>(AlertedRunOf(config, directory), worker_seconds, std::move(sender));
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
  const bool has_ended =
      std::holds_alternative<event::RunFinished>(event) || std::holds_alternative<event::RunFailed>(event);
  if (has_ended) has_time_ = !is_told_to_stop_;
  if (std::holds_alternative<event::StopRequested>(event)) is_told_to_stop_ = true;
  SendAll(incidents_.OnEvent(Clock::now(), event));
}

void RunAlerts::OnStatus(const RunStatus& status) {
  const std::lock_guard lock(mutex_);
  const IncidentTracker::Time now = Clock::now();
  const std::chrono::duration<double> since = now - last_status_.value_or(now);
  last_status_ = now;
  worker_seconds_ += since.count() * static_cast<double>(status.workers.size());
  incidents_.OnWorkerHours(worker_seconds_ / kSecondsPerHour);
  SendAll(incidents_.OnTime(now));
}

void RunAlerts::Close() {
  std::unique_ptr<AlertSender> last;
  bool has_time = false;
  {
    const std::lock_guard lock(mutex_);
    SendAll(incidents_.Close());
    last = std::move(sender_);
    has_time = has_time_;
  }
  if (last != nullptr) last->EndIn(has_time ? kPatience : kHaste);
}

}  // namespace holdfast
