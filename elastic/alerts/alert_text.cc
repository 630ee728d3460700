#include "elastic/alerts/alert_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr size_t kMaxKeyBytes = 255;       // PagerDuty's limits
constexpr size_t kMaxSummaryBytes = 1024;  // also enough for Slack

/// "step 7 of 100, 12345 tokens so far, in /runs/tiny"
std::string StandOf(const AlertedRun& run) {
  const std::string total = run.total_steps > 0 ? absl::StrCat(" of ", run.total_steps) : "";
  return absl::StrCat("step ", run.step, total, ", ", run.tokens, " tokens so far, in ", run.directory);
}

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
  std::string text = absl::StrCat("[", head, "] ", alert.summary.substr(0, kMaxSummaryBytes));
  if (!alert.run.directory.empty()) absl::StrAppend(&text, "\n", StandOf(alert.run));
  if (!alert.advice.empty() && alert.action == Alert::Action::kTrigger) absl::StrAppend(&text, "\n", alert.advice);
  // Slack reads <...> as links and mentions, &...; as entities.
  return Dump({{"text", absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}})}});
}

std::string PagerDutyBody(const Alert& alert, const std::string& routing_key) {
  nlohmann::json body = {{"routing_key", routing_key},
                         {"event_action", alert.action == Alert::Action::kResolve ? "resolve" : "trigger"},
                         {"dedup_key", alert.key.substr(0, kMaxKeyBytes)}};
  if (alert.action != Alert::Action::kResolve) {
    body["payload"] = {{"summary", alert.summary.substr(0, kMaxSummaryBytes)},
                       {"source", alert.source},
                       {"severity", SeverityName(alert.severity)},
                       {"component", "holdfast"},
                       {"group", alert.run.name},
                       {"custom_details",
                        {{"run", alert.run.name},
                         {"run_directory", alert.run.directory},
                         {"step", alert.run.step},
                         {"total_steps", alert.run.total_steps},
                         {"tokens", alert.run.tokens},
                         {"what_to_do", alert.advice}}}};
  }
  return Dump(body);
}

}  // namespace holdfast
