#include "elastic/alerts/incident_tracker.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "elastic/control/straggler.h"
#include "xxhash.h"

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

std::string NodeIncident(const std::string& node) { return absl::StrCat("node/", node); }
std::string KeptOutIncident(const std::string& worker) { return absl::StrCat("kept_out/", worker); }
std::string StragglerIncident(const std::string& worker) { return absl::StrCat("straggler/", worker); }
std::string LinkIncident(const event::LinkFields& e) { return absl::StrCat("link/", e.host, "/", e.peer_host); }

/// What a person can do about an incident; `kind` is what stands before the first slash of its name.
std::string AdviceFor(std::string_view kind, const std::string& directory) {
  const std::string look = absl::StrCat("`holdfast status ", directory, "`");
  if (kind == "worker") {
    return absl::StrCat(
        "Training continues without it and its agent starts it again; if that happens again and again, look into "
        "logs/ in ",
        directory, " and at its host.");
  }
  if (kind == "node") {
    return absl::StrCat(
        "Training continues with the other workers. Bring the host back, or start `holdfast agent` on another one: it "
        "joins by itself. ",
        look, " shows who is there.");
  }
  if (kind == "kept_out") {
    return "Training continues without it. Test the processor and memory of its host; when that is mended, end the "
           "process of that worker: its agent starts it again, and it is taken in.";
  }
  if (kind == "straggler") return "Look at the host's temperature, clock rates and other processes.";
  if (kind == "progress" || kind == "pace") return absl::StrCat(look, " shows who is waited for.");
  if (kind == "slow_link" || kind == "link") return "Look at the network between the two hosts.";
  if (kind == "size") return "Start `holdfast agent` on more hosts, or bring back those that are lost.";
  if (kind == "disk") {
    return absl::StrCat("Make room, or mend the storage, for ", directory,
                        " and the checkpoints; the run resumes by itself.");
  }
  if (kind == "checkpoints") {
    return absl::StrCat(
        "Look at the storage of the checkpoints: room, permissions, credentials. Training continues, but ",
        "a loss of state, or a stop, would cost all steps since the last checkpoint; ", look,
        " shows the last events.");
  }
  if (kind == "coordinator") return "Start another coordinator with --standby, so that this one may be lost, too.";
  if (kind == "settings") {
    return "Start the coordinator, or the agent of that worker, again with the directory, config and data of the run.";
  }
  if (kind == "bits") return "Take the host of the worker that differs out of service and test its memory.";
  if (kind == "state")
    return "Bring a host back that holds the state, if one can be; else the run goes back to a checkpoint.";
  if (kind == "run") {
    return absl::StrCat(
        "Mend the cause and begin again with `holdfast train` or `holdfast coordinator` and --resume; "
        "the last lines of events.jsonl in ",
        directory, " say what led to it.");
  }
  return "";
}

}  // namespace

AlertedRun WithWholePath(AlertedRun run) {
  std::error_code ignored;
  const std::string path = std::filesystem::weakly_canonical(run.directory, ignored).string();
  if (!path.empty()) run.directory = path;
  return run;
}

std::string IncidentKey(const AlertedRun& run, const std::string& incident) {
  return absl::StrCat("holdfast/", run.name, "-",
                      absl::Hex(XXH32(run.directory.data(), run.directory.size(), 0), absl::kZeroPad8), "/", incident);
}

IncidentTracker::IncidentTracker(AlertedRun run) : run_(WithWholePath(std::move(run))) {}

std::vector<Alert> IncidentTracker::OnEvent(Time now, const RunEvent& event) {
  now_ = now;
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { On(e); }) On(e);
        if constexpr (requires { leaving_.On(e); }) leaving_.On(e);
      },
      event);
  return std::exchange(alerts_, {});
}

std::vector<Alert> IncidentTracker::OnTime(Time now) {
  TellIf([now](const Loss& loss) { return loss.since + kGathering <= now; });
  return std::exchange(alerts_, {});
}

std::vector<Alert> IncidentTracker::Close() {
  TellAll();
  return std::exchange(alerts_, {});
}

void IncidentTracker::OnStep(int64_t step, int64_t tokens) {
  run_.step = step;
  run_.tokens = tokens;
}

// What an agent without workers had to do with is over when it is back; else its workers have to be back, too.
void IncidentTracker::On(const event::AgentJoined& e) {
  if (const auto found = losses_.find(e.node); found != losses_.end()) {
    found->second.agent = false;
    if (found->second.workers.empty()) losses_.erase(found);
  }
  const auto found = open_.find(NodeIncident(e.node));
  if (found != open_.end() && found->second.workers.empty()) End(NodeIncident(e.node), "its agent is back");
}

void IncidentTracker::On(const event::AgentLost& e) {
  if (leaving_.Has(e.node)) return;
  Lose("", e.node, e.host, "", e.cause.empty() ? "connection lost" : e.cause);
}

void IncidentTracker::On(const event::WorkerHung& e) {
  if (leaving_.Has(e.node)) return;  // it was told to go
  const std::string cause =
      absl::StrCat("hung in phase ", PhaseName(e.phase), ": ", e.reason, " for ", Short(e.seconds), " s");
  Lose(e.worker, e.node, e.host, absl::StrCat(NameOf(e), " ", cause), cause);
}

void IncidentTracker::On(const event::WorkerLost& e) {
  if (leaving_.Has(e.node)) return;
  End(StragglerIncident(e.worker), "the worker is lost");
  Lose(e.worker, e.node, e.host, absl::StrCat(NameOf(e), " lost: ", e.cause), e.cause);
}

void IncidentTracker::Lose(const std::string& worker, const std::string& node, const std::string& host,
                           const std::string& what, const std::string& cause) {
  if (worker.empty()) {
    if (nodes_.contains(node)) return;  // an agent that goes after its workers is no news
  } else if (const std::string incident = IncidentOf(worker, node); !incident.empty()) {
    open_.at(incident).workers.insert(worker);
    away_[worker] = {Away::Stage::kGone, incident};  // perhaps again, before it was back
    return;
  }
  const auto [entry, is_first] = losses_.try_emplace(node.empty() ? worker : node);
  Loss& loss = entry->second;
  if (is_first) loss = {.since = now_, .node = node, .host = host, .what = what, .cause = cause};
  if (loss.what.empty()) loss.what = what;
  if (worker.empty()) {
    loss.agent = true;
  } else {
    loss.workers.insert(worker);
    away_[worker].stage = Away::Stage::kGone;
  }
}

std::string IncidentTracker::IncidentOf(const std::string& worker, const std::string& node) const {
  if (open_.contains(NodeIncident(node))) return NodeIncident(node);
  const auto found = away_.find(worker);
  return found == away_.end() ? "" : found->second.incident;
}

void IncidentTracker::TellIf(const std::function<bool(const Loss&)>& is_due) {
  for (auto it = losses_.begin(); it != losses_.end();) {
    if (is_due(it->second)) {
      Tell(it->second);
      it = losses_.erase(it);
    } else {
      ++it;
    }
  }
}

void IncidentTracker::Tell(const Loss& loss) {
  std::string incident = NodeIncident(loss.node), what = loss.what;
  const bool is_one = loss.workers.size() == 1;
  if (is_one && !loss.agent) {
    incident = absl::StrCat("worker/", *loss.workers.begin());
  } else {
    const std::string workers =
        absl::StrCat(loss.workers.size(), is_one ? " worker (" : " workers (", absl::StrJoin(loss.workers, ", "), ")");
    const std::string both = loss.workers.empty() ? "its agent" : absl::StrCat("its agent and ", workers);
    what = absl::StrCat("host ", loss.host, " (node ", loss.node, ") has lost ", loss.agent ? both : workers, ": ",
                        loss.cause);
  }
  Begin(incident, Alert::Severity::kError, loss.host, what);
  Incident& begun = open_.at(incident);
  if (begun.node.empty() && !loss.node.empty()) nodes_.insert(begun.node = loss.node);
  begun.workers.insert(loss.workers.begin(), loss.workers.end());
  for (const std::string& worker : loss.workers) away_[worker].incident = incident;
}

void IncidentTracker::On(const event::WorkerJoined& e) {
  if (const auto found = away_.find(e.worker); found != away_.end()) found->second.stage = Away::Stage::kJoined;
}

void IncidentTracker::On(const event::KeptOut& e) {
  Begin(KeptOutIncident(e.worker), Alert::Severity::kError, e.host,
        absl::StrCat(NameOf(e.worker, -1, e.host), " is kept out: most had other bits than it ", e.contradictions,
                     " times within a day (faulty processor or memory)"));
}
void IncidentTracker::On(const event::KeptOutResolved& e) {
  const std::string incident = KeptOutIncident(e.worker);
  const auto [entry, is_forgotten] = open_.try_emplace(incident);  // a coordinator before this one told of it
  if (is_forgotten) {
    entry->second.trigger = Make(Alert::Action::kTrigger, Alert::Severity::kError, incident,
                                 absl::StrCat(NameOf(e.worker, -1, ""), " is kept out"));
  }
  End(incident, "another process has its name");
}

// What it holds is missing, and nothing else tells why: it asks again and again.
void IncidentTracker::On(const event::WorkerRefused& e) {
  Begin("settings", Alert::Severity::kCritical, e.host,
        absl::StrCat(NameOf(e.worker, -1, e.host), " holds state and is refused: it ", e.cause));
}

void IncidentTracker::On(const event::Straggler& e) {
  const std::string before =
      e.reason == kSlowerThanBefore ? absl::StrCat(Short(e.own_factor), " times as long as it used to take, ") : "";
  const std::string times = Short(e.factor);
  Begin(StragglerIncident(e.worker), Alert::Severity::kWarning, e.host,
        absl::StrCat(NameOf(e), " is slow: ", before,
                     times == "1" ? "as long as the median" : absl::StrCat(times, " times the median"), " in phase ",
                     PhaseName(e.phase)));
}
void IncidentTracker::On(const event::StragglerResolved& e) {
  End(StragglerIncident(e.worker), "as fast as the others");
}

void IncidentTracker::On(const event::WorldPublished&) {
  for (auto& [worker, away] : away_) {
    if (away.stage == Away::Stage::kJoined) away.stage = Away::Stage::kAdmitted;
  }
}

void IncidentTracker::On(const event::Recovered& e) {
  const bool is_whole = run_.workers > 0 && e.size >= run_.workers;
  const auto is_back = [&](const std::string& worker) {
    const auto found = away_.find(worker);
    return found == away_.end() || found->second.stage == Away::Stage::kAdmitted;
  };
  // What is over is told before it was gathered: there may be no other recovery that ends it.
  TellIf([&](const Loss& loss) { return is_whole || std::any_of(loss.workers.begin(), loss.workers.end(), is_back); });
  std::vector<std::pair<std::string, const char*>> back;
  for (auto& [name, incident] : open_) {
    if (name.rfind("worker/", 0) != 0 && name.rfind("node/", 0) != 0) continue;
    const size_t away = incident.workers.size();
    std::erase_if(incident.workers, is_back);
    if (incident.workers.empty() && away > 0) {
      back.emplace_back(name, away == 1 ? "it has rejoined" : "they have rejoined");
    } else if (is_whole) {
      back.emplace_back(name, "the run has all its workers again");
    }
  }
  std::erase_if(away_, [](const auto& entry) { return entry.second.stage == Away::Stage::kAdmitted; });
  for (const auto& [name, how] : back) End(name, how);
  for (const char* incident : {kCoordinatorIncident, "progress", "state", "settings", "bits", "size"}) {
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
  Begin(kCoordinatorIncident, Alert::Severity::kWarning, "",
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

void IncidentTracker::On(const event::CheckpointSaved& e) {
  failed_checkpoints_ = 0;
  saved_step_ = e.step;
  End("checkpoints", absl::StrCat("that of step ", e.step, " is written"));
}
void IncidentTracker::On(const event::CheckpointFailed& e) {
  if (++failed_checkpoints_ < kFailedCheckpoints || open_.count("disk") > 0) return;
  const std::string newest = saved_step_ > 0 ? absl::StrCat(" since that of step ", saved_step_) : "";
  Begin("checkpoints", Alert::Severity::kError, "",
        absl::StrCat(failed_checkpoints_, " checkpoints have failed and none was written", newest, "; that of step ",
                     e.step, ": ", e.cause));
}

// That old ones cannot be deleted is said with every checkpoint, each of which exists.
void IncidentTracker::On(const event::CheckpointWarning& e) {
  if (e.seconds > 0) Begin("checkpoints", Alert::Severity::kError, "", e.cause);
}

void IncidentTracker::On(const event::StateFields& e) {
  Begin("state", Alert::Severity::kCritical, "",
        e.holders.empty()
            ? absl::StrCat("no connected worker holds the state of step ", e.step)
            : absl::StrCat("no holder of a part of the state of step ", e.step, " is connected: ", e.holders));
}
void IncidentTracker::On(const event::Rewind& e) {
  Begin("state", Alert::Severity::kCritical, "",
        absl::StrCat("rewinding from step ", e.from_step, " to step ", e.step, ": ", e.reason));
}
void IncidentTracker::On(const event::BitsDiffer& e) {
  Begin("bits", Alert::Severity::kCritical, "",
        absl::StrCat("workers disagree on the result of step ", e.step, " (faulty processor or memory): ", e.workers));
}

void IncidentTracker::On(const event::CopiesDiffer& e) {
  Begin("bits", Alert::Severity::kCritical, "",
        absl::StrCat("copies of the state of step ", e.step, " differ (faulty memory): ", e.workers,
                     e.computed_with ? "; steps before may have been computed with a wrong one" : ""));
}

void IncidentTracker::On(const event::RunFailed& e) {
  EndAll("the run has failed");
  Begin("run", Alert::Severity::kCritical, "", absl::StrCat("failed at step ", e.step, ": ", e.reason));
}
void IncidentTracker::On(const event::RunFinished& e) { EndWell("finished: ", e.reason); }
void IncidentTracker::On(const event::RunStopped& e) { EndWell("stopped: ", e.reason); }

void IncidentTracker::EndWell(const char* how, const std::string& reason) {
  EndAll("the run has ended");
  alerts_.push_back(Make(Alert::Action::kNotify, Alert::Severity::kInfo, "run", absl::StrCat(how, reason)));
}

void IncidentTracker::Begin(const std::string& incident, Alert::Severity severity, const std::string& source,
                            const std::string& what) {
  const auto [entry, is_new] = open_.try_emplace(incident);
  if (!is_new) return;
  Alert& alert = entry->second.trigger;
  alert = Make(Alert::Action::kTrigger, severity, incident, what);
  alert.advice = AdviceFor(incident.substr(0, incident.find('/')), run_.directory);
  if (!source.empty()) alert.source = source;
  alerts_.push_back(alert);
}

void IncidentTracker::End(const std::string& incident, const std::string& how) {
  const auto found = open_.find(incident);
  if (found == open_.end()) return;
  Alert alert = std::move(found->second.trigger);
  for (const std::string& worker : found->second.workers) away_.erase(worker);
  if (const auto node = nodes_.find(found->second.node); node != nodes_.end()) nodes_.erase(node);
  open_.erase(found);
  alert.action = Alert::Action::kResolve;
  alert.run = run_;
  absl::StrAppend(&alert.summary, " - ", how);
  alerts_.push_back(std::move(alert));
}

void IncidentTracker::EndAll(const std::string& how) {
  TellAll();
  while (!open_.empty()) End(std::string(open_.begin()->first), how);
}

Alert IncidentTracker::Make(Alert::Action action, Alert::Severity severity, const std::string& incident,
                            const std::string& what) const {
  return {.action = action,
          .severity = severity,
          .key = IncidentKey(run_, incident),
          .summary = absl::StrCat("run ", run_.name, ": ", what),
          .source = run_.name,
          .run = run_};
}

}  // namespace holdfast
