#include "elastic/alerts/incident_tracker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace holdfast {
namespace {

std::string TextOf(const RunEvent::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  return absl::StrFormat("%.3g", std::get<double>(value));
}

/// Empty if the event has no such field.
std::string Field(const RunEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.fields) {
    if (key == name) return TextOf(value);
  }
  return {};
}

/// "worker node-0/2 (rank 2, host h7)"
std::string WorkerOf(const RunEvent& event) {
  const std::string rank = Field(event, "rank"), host = Field(event, "host");
  std::string details = rank.empty() || rank == "-1" ? "" : absl::StrCat("rank ", rank);
  if (!host.empty()) absl::StrAppend(&details, details.empty() ? "" : ", ", "host ", host);
  const std::string name = absl::StrCat("worker ", Field(event, "worker"));
  return details.empty() ? name : absl::StrCat(name, " (", details, ")");
}

std::string WorkerIncident(const RunEvent& event) { return absl::StrCat("worker/", Field(event, "worker")); }
std::string LinkIncident(const RunEvent& event) {
  return absl::StrCat("link/", Field(event, "host"), "/", Field(event, "peer_host"));
}
std::string StragglerIncident(const RunEvent& event) { return absl::StrCat("straggler/", Field(event, "worker")); }

}  // namespace

std::vector<Alert> IncidentTracker::OnEvent(const RunEvent& event) {
  OnWorkerEvent(event);
  OnWorldEvent(event);
  OnRunEvent(event);
  return std::exchange(alerts_, {});
}

void IncidentTracker::OnWorkerEvent(const RunEvent& event) {
  const std::string host = Field(event, "host"), node = Field(event, "node");
  if (event.name == "node_leaving") {
    leaving_.insert(node);
  } else if (event.name == "node_returned") {
    leaving_.erase(node);
  } else if (leaving_.count(node) > 0 && (event.name == "worker_hung" || event.name == "worker_lost")) {
    return;  // it was told to go
  }
  if (event.name == "worker_hung") {
    Begin(WorkerIncident(event), Alert::Severity::kError, host,
          absl::StrCat(WorkerOf(event), " hangs in phase ", Field(event, "phase"), ": ", Field(event, "reason"),
                       " for ", Field(event, "seconds"), " s"));
  } else if (event.name == "worker_lost") {
    End(StragglerIncident(event), "the worker is lost");
    Begin(WorkerIncident(event), Alert::Severity::kError, host,
          absl::StrCat(WorkerOf(event), " lost: ", Field(event, "cause")));
    open_[WorkerIncident(event)].stage = Stage::kGone;  // lost again before it was back
  } else if (event.name == "worker_joined") {
    const auto found = open_.find(WorkerIncident(event));
    if (found != open_.end()) found->second.stage = Stage::kJoined;
  } else if (event.name == "straggler") {
    Begin(StragglerIncident(event), Alert::Severity::kWarning, host,
          absl::StrCat(WorkerOf(event), " is slow: ", Field(event, "factor"), " times the median in phase ",
                       Field(event, "phase")));
  } else if (event.name == "straggler_resolved") {
    End(StragglerIncident(event), "as fast as the others");
  }
}

void IncidentTracker::OnWorldEvent(const RunEvent& event) {
  const std::string step = Field(event, "step");
  if (event.name == "world_published") {
    AdmitJoined();
  } else if (event.name == "recovered") {
    EndOfAdmitted();
    for (const char* incident : {"progress", "state", "bits", "size", "disk"}) End(incident, "the run goes on");
  } else if (event.name == "no_progress") {
    Begin("progress", Alert::Severity::kError, "",
          absl::StrCat("no progress on step ", step, " for ", Field(event, "seconds"), " s"));
  } else if (event.name == "too_few_workers") {
    Begin("size", Alert::Severity::kError, "",
          absl::StrCat("the run stands still after step ", step, ": ", Field(event, "detail")));
  } else if (event.name == "paused") {
    Begin("disk", Alert::Severity::kError, "", absl::StrCat("paused: ", Field(event, "cause")));
  } else if (event.name == "resumed") {
    End("disk", "the run goes on");
  } else if (event.name == "link_cut") {
    const std::string without = Field(event, "without");
    Begin(LinkIncident(event), Alert::Severity::kError, Field(event, "host"),
          absl::StrCat("no link between ", Field(event, "host"), " and ", Field(event, "peer_host"), " in step ", step,
                       without.empty() ? ", and neither can be spared" : absl::StrCat("; going on without ", without)));
  } else if (event.name == "link_back") {
    End(LinkIncident(event), "it is back");
  } else if (event.name == "step_slow") {
    Begin("pace", Alert::Severity::kWarning, "",
          absl::StrCat("step ", step, " takes more than ", Field(event, "seconds"), " s instead of ",
                       Field(event, "usual_seconds"), " s; waiting for ", Field(event, "waiting_for")));
  } else if (event.name == "link_slow") {
    Begin("slow_link", Alert::Severity::kWarning, Field(event, "host"),
          absl::StrCat("the others reach ", WorkerOf(event), " in ", Field(event, "milliseconds"),
                       " ms, each other in ", Field(event, "usual_milliseconds"), " ms"));
  } else if (event.name == "step_slow_resolved") {
    for (const char* incident : {"slow_link", "pace"}) End(incident, "steps take as long as before");
  } else if (event.name == "state_missing" || event.name == "state_lost") {
    Begin("state", Alert::Severity::kCritical, "",
          absl::StrCat("no holder of a part of the state of step ", step, " is left: ", Field(event, "holders")));
  } else if (event.name == "rewind") {
    Begin("state", Alert::Severity::kCritical, "", absl::StrCat("state was lost; the run goes back to step ", step));
  } else if (event.name == "bits_differ") {
    Begin("bits", Alert::Severity::kCritical, "",
          absl::StrCat("workers disagree on the result of step ", step,
                       " (a processor or memory is broken): ", Field(event, "workers")));
  }
}

void IncidentTracker::OnRunEvent(const RunEvent& event) {
  const std::string reason = Field(event, "reason");
  if (event.name == "run_failed") {
    EndAll("the run has failed");
    Begin("run", Alert::Severity::kCritical, "", absl::StrCat("failed at step ", Field(event, "step"), ": ", reason));
  } else if (event.name == "run_finished" || event.name == "run_stopped") {
    EndAll("the run has ended");
    const char* how = event.name == "run_finished" ? "finished: " : "stopped: ";
    alerts_.push_back(
        {Alert::Action::kNotify, Alert::Severity::kInfo, Key("run"), Sentence(absl::StrCat(how, reason)), run_name_});
  }
}

void IncidentTracker::Begin(const std::string& incident, Alert::Severity severity, const std::string& source,
                            const std::string& what) {
  const auto [entry, is_new] = open_.try_emplace(incident);
  if (!is_new) return;
  Alert& alert = entry->second.trigger;
  alert = {Alert::Action::kTrigger, severity, Key(incident), Sentence(what), source.empty() ? run_name_ : source};
  alerts_.push_back(alert);
}

void IncidentTracker::End(const std::string& incident, const std::string& how) {
  const auto found = open_.find(incident);
  if (found == open_.end()) return;
  Alert alert = std::move(found->second.trigger);
  open_.erase(found);
  alert.action = Alert::Action::kResolve;
  absl::StrAppend(&alert.summary, " - ", how);
  alerts_.push_back(std::move(alert));
}

void IncidentTracker::EndAll(const std::string& how) {
  while (!open_.empty()) End(std::string(open_.begin()->first), how);
}

void IncidentTracker::AdmitJoined() {
  for (auto& [name, incident] : open_) {
    if (incident.stage == Stage::kJoined) incident.stage = Stage::kAdmitted;
  }
}

void IncidentTracker::EndOfAdmitted() {
  std::vector<std::string> back;
  for (const auto& [name, incident] : open_) {
    if (incident.stage == Stage::kAdmitted) back.push_back(name);
  }
  for (const std::string& name : back) End(name, "it is back");
}

std::string IncidentTracker::Key(const std::string& incident) const {
  return absl::StrCat("holdfast/", run_name_, "/", incident);
}

std::string IncidentTracker::Sentence(const std::string& what) const {
  return absl::StrCat("run ", run_name_, ": ", what);
}

}  // namespace holdfast
