#include "elastic/alerts/alert_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/clip_text.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

constexpr size_t kMaxKeyBytes = 255;       // PagerDuty's limits
constexpr size_t kMaxSummaryBytes = 1024;  // also enough for Slack

double CostOf(const AlertedRun& run) { return run.worker_hours * run.price_per_hour; }

/// "step 7 of 100, 12345 tokens and 16.2 GPU hours (cost 40.5) so far, in /runs/tiny"
std::string StandOf(const AlertedRun& run) {
  const std::string total = run.total_steps > 0 ? absl::StrCat(" of ", run.total_steps) : "";
  const std::string cost = run.price_per_hour > 0 ? absl::StrFormat(" (cost %.2f)", CostOf(run)) : "";
  return absl::StrFormat("step %d%s, %d tokens and %.1f %s hours%s so far, in %s", run.step, total, run.tokens,
                         run.worker_hours, run.on_gpus ? "GPU" : "worker", cost, run.directory);
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
  std::string text = absl::StrCat("[", head, "] ", ClipText(alert.summary, kMaxSummaryBytes));
  if (!alert.run.directory.empty()) absl::StrAppend(&text, "\n", StandOf(alert.run));
  if (!alert.advice.empty() && alert.action == Alert::Action::kTrigger) absl::StrAppend(&text, "\n", alert.advice);
  // Slack reads <...> as links and mentions, &...; as entities.
  return Dump({{"text", absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}})}});
}

std::string PagerDutyBody(const Alert& alert, const std::string& routing_key) {
  const AlertedRun& run = alert.run;
  nlohmann::json body = {{"routing_key", routing_key},
                         {"event_action", alert.action == Alert::Action::kResolve ? "resolve" : "trigger"},
                         {"dedup_key", ClipText(alert.key, kMaxKeyBytes)}};
  if (alert.action != Alert::Action::kResolve) {
    body["payload"] = {{"summary", ClipText(alert.summary, kMaxSummaryBytes)},
                       {"source", alert.source},
                       {"severity", SeverityName(alert.severity)},
                       {"component", "holdfast"},
                       {"group", run.name},
                       {"custom_details",
                        {{"run", run.name},
                         {"run_directory", run.directory},
                         {"step", run.step},
                         {"total_steps", run.total_steps},
                         {"tokens", run.tokens},
                         {run.on_gpus ? "gpu_hours" : "worker_hours", run.worker_hours},
                         {"what_to_do", alert.advice}}}};
    if (run.price_per_hour > 0) body["payload"]["custom_details"]["cost"] = CostOf(run);
  }
  return Dump(body);
}

}  // namespace holdfast
