#include "elastic/alerts/alert_sender.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "elastic/alerts/alert_text.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/http/http_connection.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxSecretBytes = 4096;
constexpr int kTooManyRequests = 429;
constexpr char kSlackKey[] = "alerts.slack_webhook_file", kPagerDutyKey[] = "alerts.pagerduty_key_file";

/// Of the file that `key` of the config names; errors name both.
absl::StatusOr<std::string> ReadSecret(const char* key, const std::string& path) {
  if (path.empty()) return std::string();
  const absl::StatusOr<std::string> contents = ReadFile(path, kMaxSecretBytes);
  if (!contents.ok()) return Annotate(contents.status(), key);
  std::string secret(absl::StripAsciiWhitespace(*contents));
  const auto is_printable = [](char c) { return c > ' ' && c < 127; };
  if (secret.empty() || !std::all_of(secret.begin(), secret.end(), is_printable)) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": ", path, ": must hold one line, the secret"));
  }
  return secret;
}

/// Unavailable: another attempt may help (network, 429, 5xx). Any other error: it will not.
absl::Status Post(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const auto connection, HttpConnection::Create());
  ASSIGN_OR_RETURN(const HttpAnswer answer, connection->Perform(request));
  if (answer.status >= 200 && answer.status < 300) return absl::OkStatus();
  const std::string message = absl::StrCat("HTTP status ", answer.status);
  const bool may_pass = answer.status >= 500 || answer.status == kTooManyRequests;
  return may_pass ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<AlertOptions> ReadAlertOptions(const std::string& slack_webhook_file,
                                              const std::string& pagerduty_key_file) {
  AlertOptions options;
  ASSIGN_OR_RETURN(options.slack_webhook, ReadSecret(kSlackKey, slack_webhook_file));
  ASSIGN_OR_RETURN(options.pagerduty_key, ReadSecret(kPagerDutyKey, pagerduty_key_file));
  if (!options.slack_webhook.empty() && options.slack_webhook.rfind("https://", 0) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSlackKey, ": ", slack_webhook_file, ": must hold a URL that begins with https://"));
  }
  return options;
}

/// One service: its queue and its thread.
class AlertSender::Service {
 public:
  using MakeBody = std::function<std::string(const Alert&)>;

  Service(std::string name, bool wants_news, std::string url, const AlertOptions& options, MakeBody make_body)
      : name_(std::move(name)),
        wants_news_(wants_news),
        url_(std::move(url)),
        options_(options),
        make_body_(std::move(make_body)),
        thread_([this] { Work(); }) {}
  ~Service() { thread_.join(); }  // after EndIn

  /// Whether it is told what nobody has to act on.
  bool wants_news() const { return wants_news_; }
  void Send(const Alert& alert);
  /// From now on the thread ends when the queue is empty, or when the time is over.
  void EndIn(std::chrono::milliseconds time);

 private:
  void Work();
  void Deliver(const Alert& alert);
  /// False if it is time to give up. An attempt that began before the drain is followed by one at its beginning.
  bool WaitForNextAttempt(std::chrono::milliseconds backoff, bool in_drain);
  bool InDrain() {
    const std::lock_guard lock(mutex_);
    return draining_;
  }
  bool IsOver() const { return draining_ && Clock::now() >= deadline_; }
  void Report(const std::string& problem) const {
    if (options_.on_failure) options_.on_failure(absl::StrCat(name_, ": ", problem));
  }

  const std::string name_;
  const bool wants_news_;
  const std::string url_;
  const AlertOptions options_;
  const MakeBody make_body_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::deque<Alert> queue_;
  int64_t dropped_ = 0;  // and not reported yet: the thread does that, for the caller may hold locks
  bool draining_ = false;
  Clock::time_point deadline_;

  std::thread thread_;  // last: it uses everything above
};

void AlertSender::Service::Send(const Alert& alert) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= options_.max_queued) {
    queue_.pop_front();
    ++dropped_;
  }
  queue_.push_back(alert);
  changed_.notify_all();
}

void AlertSender::Service::EndIn(std::chrono::milliseconds time) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(draining_, true)) return;
  deadline_ = Clock::now() + time;
  changed_.notify_all();
}

void AlertSender::Service::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return draining_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const bool is_over = IsOver();
    const int64_t dropped = std::exchange(dropped_, 0);
    const Alert alert = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (dropped > 0) Report(absl::StrCat("too many alerts wait; ", dropped, " were dropped"));
    if (is_over) {
      Report(absl::StrCat("no time left to send: ", alert.summary));
    } else {
      Deliver(alert);
    }
    lock.lock();
  }
}

void AlertSender::Service::Deliver(const Alert& alert) {
  const auto give_up = [this] {
    const std::lock_guard lock(mutex_);
    return IsOver();
  };
  const std::string text = make_body_(alert);
  const MemoryBody body(text);
  HttpRequest request;
  request.method = "POST";
  request.url = url_;
  request.headers = {{"content-type", "application/json"}};
  request.body = &body;
  request.timeout = options_.timeout;
  request.tls_only = !options_.allow_plain_http;
  request.secret_url = request.discard_answer = true;  // error pages repeat the URL
  request.give_up = give_up;
  absl::Status status;
  const Clock::time_point last = Clock::now() + options_.retry_for;
  bool is_first = true;
  for (auto backoff = options_.first_backoff;; backoff = std::min(2 * backoff, options_.max_backoff)) {
    const bool in_drain = InDrain();
    status = Post(request);
    if (status.ok()) return;
    if (!absl::IsUnavailable(status) || Clock::now() + backoff > last) break;
    if (!WaitForNextAttempt(backoff, in_drain)) break;
    if (is_first) Report(absl::StrCat(std::string(status.message()), "; trying again: ", alert.summary));
    is_first = false;
  }
  Report(absl::StrCat(std::string(status.message()), "; not delivered: ", alert.summary));
}

// The pause between two attempts may be longer than a drain, and the service be back.
bool AlertSender::Service::WaitForNextAttempt(std::chrono::milliseconds backoff, bool in_drain) {
  const Clock::time_point next = Clock::now() + backoff;
  std::unique_lock lock(mutex_);
  while (Clock::now() < next && draining_ == in_drain && !IsOver()) {
    changed_.wait_until(lock, draining_ ? std::min(next, deadline_) : next);
  }
  return !IsOver();
}

AlertSender::AlertSender(const AlertOptions& options) : drain_timeout_(options.drain_timeout) {
  if (!options.slack_webhook.empty()) {
    services_.push_back(
        std::make_unique<Service>("slack", /*wants_news=*/true, options.slack_webhook, options, &SlackBody));
  }
  if (!options.pagerduty_key.empty()) {
    const auto make_body = [key = options.pagerduty_key](const Alert& alert) { return PagerDutyBody(alert, key); };
    services_.push_back(
        std::make_unique<Service>("pagerduty", /*wants_news=*/false, options.pagerduty_url, options, make_body));
  }
}

AlertSender::~AlertSender() { EndIn(drain_timeout_); }

void AlertSender::EndIn(std::chrono::milliseconds time) {
  for (const auto& service : services_) service->EndIn(time);
}

void AlertSender::Send(const Alert& alert) {
  for (const auto& service : services_) {
    if (alert.action != Alert::Action::kNotify || service->wants_news()) service->Send(alert);
  }
}

}  // namespace holdfast
