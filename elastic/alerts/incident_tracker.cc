#include "elastic/alerts/incident_tracker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace holdfast {
namespace {

std::string Short(double number) { return absl::StrFormat("%.3g", number); }

/// "worker node-0/2 (rank 2, host h7)"
std::string NameOf(const std::string& worker, int rank, const std::string& host) {
  std::string details = rank < 0 ? "" : absl::StrCat("rank ", rank);
  if (!host.empty()) absl::StrAppend(&details, details.empty() ? "" : ", ", "host ", host);
  return absl::StrCat("worker ", worker, details.empty() ? "" : absl::StrCat(" (", details, ")"));
}
template <class Event>
std::string NameOf(const Event& e) {
  return NameOf(e.worker, e.rank, e.host);
}

std::string WorkerIncident(const std::string& worker) { return absl::StrCat("worker/", worker); }
std::string StragglerIncident(const std::string& worker) { return absl::StrCat("straggler/", worker); }
std::string LinkIncident(const event::LinkFields& e) { return absl::StrCat("link/", e.host, "/", e.peer_host); }

}  // namespace

std::vector<Alert> IncidentTracker::OnEvent(const RunEvent& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { On(e); }) On(e);
      },
      event);
  return std::exchange(alerts_, {});
}

void IncidentTracker::On(const event::NodeLeaving& e) { leaving_.insert(e.node); }
void IncidentTracker::On(const event::NodeReturned& e) { leaving_.erase(e.node); }

void IncidentTracker::On(const event::WorkerHung& e) {
  if (leaving_.count(e.node) > 0) return;  // it was told to go
  Begin(
      WorkerIncident(e.worker), Alert::Severity::kError, e.host,
      absl::StrCat(NameOf(e), " hung in phase ", PhaseName(e.phase), ": ", e.reason, " for ", Short(e.seconds), " s"));
}

void IncidentTracker::On(const event::WorkerLost& e) {
  if (leaving_.count(e.node) > 0) return;
  End(StragglerIncident(e.worker), "the worker is lost");
  Begin(WorkerIncident(e.worker), Alert::Severity::kError, e.host, absl::StrCat(NameOf(e), " lost: ", e.cause));
  open_[WorkerIncident(e.worker)].stage = Stage::kGone;  // lost again before it was back
}

void IncidentTracker::On(const event::WorkerJoined& e) {
  const auto found = open_.find(WorkerIncident(e.worker));
  if (found != open_.end()) found->second.stage = Stage::kJoined;
}

void IncidentTracker::On(const event::Straggler& e) {
  Begin(StragglerIncident(e.worker), Alert::Severity::kWarning, e.host,
        absl::StrCat(NameOf(e), " is slow: ", Short(e.factor), " times the median in phase ", PhaseName(e.phase)));
}
void IncidentTracker::On(const event::StragglerResolved& e) {
  End(StragglerIncident(e.worker), "as fast as the others");
}

void IncidentTracker::On(const event::WorldPublished&) {
  for (auto& [name, incident] : open_) {
    if (incident.stage == Stage::kJoined) incident.stage = Stage::kAdmitted;
  }
}

void IncidentTracker::On(const event::Recovered&) {
  std::vector<std::string> back;
  for (const auto& [name, incident] : open_) {
    if (incident.stage == Stage::kAdmitted) back.push_back(name);
  }
  for (const std::string& name : back) End(name, "it has rejoined");
  for (const char* incident : {"coordinator", "progress", "state", "bits", "size", "disk"}) {
    End(incident, "the run has resumed");
  }
}

void IncidentTracker::On(const event::NoProgress& e) {
  Begin("progress", Alert::Severity::kError, "",
        absl::StrCat("no progress on step ", e.step, " for ", Short(e.seconds), " s"));
}
void IncidentTracker::On(const event::TooFewWorkers& e) {
  Begin("size", Alert::Severity::kError, "", absl::StrCat("training is suspended after step ", e.step, ": ", e.detail));
}

void IncidentTracker::On(const event::CoordinatorChanged& e) {
  Begin("coordinator", Alert::Severity::kWarning, "",
        absl::StrCat("another coordinator leads: ", e.cause, "; workers come back to it"));
}
void IncidentTracker::On(const event::Paused& e) {
  Begin("disk", Alert::Severity::kError, "", absl::StrCat("paused: ", e.cause));
}
void IncidentTracker::On(const event::Resumed&) { End("disk", "the run has resumed"); }

void IncidentTracker::On(const event::LinkCut& e) {
  Begin(LinkIncident(e), Alert::Severity::kError, e.host,
        absl::StrCat(
            "no link between ", e.host, " and ", e.peer_host, " in step ", e.step,
            e.without.empty() ? "; both are needed to continue" : absl::StrCat("; continuing without ", e.without)));
}
void IncidentTracker::On(const event::LinkBack& e) { End(LinkIncident(e), "the link works again"); }

void IncidentTracker::On(const event::StepSlow& e) {
  Begin("pace", Alert::Severity::kWarning, "",
        absl::StrCat("step ", e.step, " takes more than ", Short(e.seconds), " s instead of ", Short(e.usual_seconds),
                     " s; waiting for ", e.waiting_for));
}
void IncidentTracker::On(const event::LinkSlow& e) {
  const std::string worker = NameOf(e.worker, -1, e.host);
  const std::string who = e.peer.empty()
                              ? absl::StrCat("the others reach ", worker)
                              : absl::StrCat(worker, " and ", NameOf(e.peer, -1, e.peer_host), " reach each other");
  Begin("slow_link", Alert::Severity::kWarning, e.host,
        absl::StrCat(who, " in ", Short(e.milliseconds), " ms, ", e.peer.empty() ? "each other" : "others", " in ",
                     Short(e.usual_milliseconds), " ms"));
}
void IncidentTracker::On(const event::StepSlowResolved&) {
  for (const char* incident : {"slow_link", "pace"}) End(incident, "steps take as long as before");
}

void IncidentTracker::On(const event::StateFields& e) {
  Begin("state", Alert::Severity::kCritical, "",
        absl::StrCat("no holder of a part of the state of step ", e.step, " is connected: ", e.holders));
}
void IncidentTracker::On(const event::Rewind& e) {
  Begin("state", Alert::Severity::kCritical, "", absl::StrCat("state was lost; rewinding to step ", e.step));
}
void IncidentTracker::On(const event::BitsDiffer& e) {
  Begin("bits", Alert::Severity::kCritical, "",
        absl::StrCat("workers disagree on the result of step ", e.step, " (faulty processor or memory): ", e.workers));
}

void IncidentTracker::On(const event::RunFailed& e) {
  EndAll("the run has failed");
  Begin("run", Alert::Severity::kCritical, "", absl::StrCat("failed at step ", e.step, ": ", e.reason));
}
void IncidentTracker::On(const event::RunFinished& e) { EndWell("finished: ", e.reason); }
void IncidentTracker::On(const event::RunStopped& e) { EndWell("stopped: ", e.reason); }

void IncidentTracker::EndWell(const char* how, const std::string& reason) {
  EndAll("the run has ended");
  alerts_.push_back(
      {Alert::Action::kNotify, Alert::Severity::kInfo, Key("run"), Sentence(absl::StrCat(how, reason)), run_name_});
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

std::string IncidentTracker::Key(const std::string& incident) const {
  return absl::StrCat("holdfast/", run_name_, "/", incident);
}

std::string IncidentTracker::Sentence(const std::string& what) const {
  return absl::StrCat("run ", run_name_, ": ", what);
}

}  // namespace holdfast
