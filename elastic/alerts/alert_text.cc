#include "elastic/alerts/alert_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr size_t kMaxKeyBytes = 255;       // PagerDuty's limits
constexpr size_t kMaxSummaryBytes = 1024;  // also enough for Slack

// Bytes that are not UTF-8 become U+FFFD; a summary may quote a log.
std::string Dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* SeverityName(Alert::Severity severity) {
  switch (severity) {
    case Alert::Severity::kInfo:
      return "info";
    case Alert::Severity::kWarning:
      return "warning";
    case Alert::Severity::kError:
      return "error";
    case Alert::Severity::kCritical:
      return "critical";
  }
  return "error";
}

}  // namespace

std::string SlackBody(const Alert& alert) {
  const std::string head = alert.action == Alert::Action::kResolve  ? "resolved"
                           : alert.action == Alert::Action::kNotify ? "holdfast"
                                                                    : SeverityName(alert.severity);
  // Slack reads <...> as links and mentions, &...; as entities.
  const std::string text =
      absl::StrReplaceAll(alert.summary.substr(0, kMaxSummaryBytes), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  return Dump({{"text", absl::StrCat("[", head, "] ", text)}});
}

std::string PagerDutyBody(const Alert& alert, const std::string& routing_key) {
  nlohmann::json body = {{"routing_key", routing_key},
                         {"event_action", alert.action == Alert::Action::kResolve ? "resolve" : "trigger"},
                         {"dedup_key", alert.key.substr(0, kMaxKeyBytes)}};
  if (alert.action != Alert::Action::kResolve) {
    body["payload"] = {{"summary", alert.summary.substr(0, kMaxSummaryBytes)},
                       {"source", alert.source},
                       {"severity", SeverityName(alert.severity)}};
  }
  return Dump(body);
}

}  // namespace holdfast
