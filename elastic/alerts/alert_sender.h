#pragma once
// Delivers alerts to Slack and PagerDuty from threads of its own, one per service, so that neither training nor the
// other service waits for one that hangs. A service that cannot be reached is tried again for minutes; then what could
// not be delivered is reported and dropped.
//
// Secrets (the webhook's URL, the routing key) appear in no message.
//
// Example:
//   ASSIGN_OR_RETURN(AlertOptions options, ReadAlertOptions(config.alerts.slack_webhook_file, ...));
//   options.on_failure = [&](const std::string& problem) { ... };
//   AlertSender sender(options);
//   for (const Alert& alert : tracker.OnEvent(event)) sender.Send(alert);

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/alerts/alert.h"

namespace holdfast {

struct AlertOptions {
  std::string slack_webhook{};  // an incoming webhook's URL; empty = not used
  std::string pagerduty_key{};  // an events v2 integration key; empty = not used
  std::string pagerduty_url = "https://events.pagerduty.com/v2/enqueue";
  bool allow_plain_http = false;  // for tests
  std::chrono::milliseconds timeout{5000};
  std::chrono::milliseconds retry_for{600'000};   // from the first attempt at an alert
  std::chrono::milliseconds first_backoff{1000};  // between the first two; then twice that, ...
  std::chrono::milliseconds max_backoff{30'000};
  std::chrono::milliseconds drain_timeout{5'000};  // the destructor waits so long for what is queued
  size_t max_queued = 256;                         // per service; the oldest are dropped
  /// "slack: HTTP status 500; not delivered: ...", and, at the first failure of an alert, "...; trying again: ...";
  /// called by the sender's threads only, so it may take locks that callers of Send hold.
  std::function<void(const std::string& problem)> on_failure{};
};

/// Reads the secrets; an empty path means that the service is not used.
absl::StatusOr<AlertOptions> ReadAlertOptions(const std::string& slack_webhook_file,
                                              const std::string& pagerduty_key_file);

/// Thread-safe.
class AlertSender {
 public:
  explicit AlertSender(const AlertOptions& options);
  /// Sends what is queued, for `drain_timeout` at most. Holding no lock that on_failure takes.
  ~AlertSender();
  AlertSender(const AlertSender&) = delete;
  AlertSender& operator=(const AlertSender&) = delete;

  /// Queues and returns.
  void Send(const Alert& alert);
  /// From now on what is queued has so long. The first call counts, the destructor's is the last.
  void EndIn(std::chrono::milliseconds time);

 private:
  class Service;
  const std::chrono::milliseconds drain_timeout_;
  std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace holdfast
