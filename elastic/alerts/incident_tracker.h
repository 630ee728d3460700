#pragma once
// From the events of a run to alerts: one when an incident begins, one when it is over, none in between. Pure: events
// and the time in, alerts out.
//
//   incident            begins with                  is over with
//   worker/NAME         worker_hung, worker_lost     the first step of a world that NAME was there for, or that has all
//                                                    the workers the run is to have; the run's end
//   node/NODE           several of these of a node   the same, of all its workers that were lost
//                       in kGathering, or agent_lost
//   kept_out/NAME       kept_out                     kept_out_resolved; the run's end
//   straggler/NAME      straggler                    straggler_resolved, worker_lost; the run's end
//   progress            no_progress                  recovered; the run's end
//   state               state_missing, state_lost,   recovered; the run's end
//                       rewind
//   settings            worker_refused               recovered; the run's end
//   bits                bits_differ, copies_differ   recovered; the run's end
//   size                too_few_workers              recovered; the run's end
//   disk                paused                       resumed; the run's end
//   checkpoints         kFailedCheckpoints times     checkpoint; the run's end
//                       checkpoint_failed and none
//                       that exists in between, or
//                       checkpoint_warning of one
//                       that has been written for long
//   coordinator         coordinator_changed          recovered; the run's end
//   link/HOST/HOST      link_cut                     link_back; the run's end
//   pace                step_slow                    step_slow_resolved; the run's end
//   slow_link           link_slow                    step_slow_resolved; the run's end
//   run                 run_failed                   a person's doing
//   (news)              run_finished, run_stopped
//
// A worker that hangs is removed and so lost: one incident. What a node loses is gathered for kGathering after its
// first loss: a dead host is one incident, however many workers it had. Keys carry the run's name and a digest of its
// directory, so a coordinator that was started again opens no second incident for what is still open, and runs of one
// name are told apart. What becomes of the workers of a node that was told to leave is no incident, nor is a checkpoint
// that fails by itself, as with every loss of a worker that was writing, or while the run is paused for it.
//
// Thread-safety: none.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/alerts/alert.h"
#include "elastic/control/leaving_nodes.h"
#include "elastic/control/run_event.h"

namespace holdfast {

/// The incident that no coordinator leads the run, which others than a coordinator may have to tell of.
inline constexpr const char* kCoordinatorIncident = "coordinator";
/// With its directory as it is, whatever way it is written: a run that is resumed has the keys that it had before.
AlertedRun WithWholePath(AlertedRun run);
/// "holdfast/NAME-DIGEST/INCIDENT"; the digest is of the run's directory.
std::string IncidentKey(const AlertedRun& run, const std::string& incident);

class IncidentTracker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kGathering{2};
  static constexpr int kFailedCheckpoints = 3;

  explicit IncidentTracker(AlertedRun run);

  /// In the order in which they are to be sent.
  std::vector<Alert> OnEvent(Time now, const RunEvent& event);
  /// Now and then: what waits to be gathered.
  std::vector<Alert> OnTime(Time now);
  /// Alerts say how far the run is, and what it has cost.
  void OnStep(int64_t step, int64_t tokens);
  void OnWorkerHours(double hours) { run_.worker_hours = hours; }
  /// The coordinator ends: what is gathered so far is told.
  std::vector<Alert> Close();

 private:
  /// A worker that was lost, and has not done a step since. Thousands may be at once, so nobody searches for one.
  struct Away {
    enum class Stage {
      kGone,
      kJoined,    // waits to be taken in
      kAdmitted,  // the next world has been published since
    };
    Stage stage = Stage::kGone;
    std::string incident;  // empty: it is not told yet
  };
  struct Incident {
    Alert trigger;
    std::string node;
    std::set<std::string> workers;  // that it is over with, when they are back
  };
  /// Of a node, until it is told.
  struct Loss {
    Time since;
    std::string node, host;
    std::string what;   // of the first worker, as its own alert would say it
    std::string cause;  // of the first loss
    bool agent = false;
    std::set<std::string> workers{};
  };

  // Other events are nothing to act on.
  void On(const event::AgentJoined& e);
  void On(const event::AgentLost& e);
  void On(const event::WorkerHung& e);
  void On(const event::WorkerLost& e);
  void On(const event::WorkerJoined& e);
  void On(const event::WorkerRefused& e);
  void On(const event::KeptOut& e);
  void On(const event::KeptOutResolved& e);
  void On(const event::Straggler& e);
  void On(const event::StragglerResolved& e);
  void On(const event::WorldPublished& e);
  void On(const event::Recovered& e);
  void On(const event::NoProgress& e);
  void On(const event::TooFewWorkers& e);
  void On(const event::CoordinatorChanged& e);
  void On(const event::Paused& e);
  void On(const event::Resumed& e);
  void On(const event::LinkCut& e);
  void On(const event::LinkBack& e);
  void On(const event::StepSlow& e);
  void On(const event::LinkSlow& e);
  void On(const event::StepSlowResolved& e);
  void On(const event::CheckpointSaved& e);
  void On(const event::CheckpointFailed& e);
  void On(const event::CheckpointWarning& e);
  void On(const event::StateFields& e);  // missing or lost
  void On(const event::Rewind& e);
  void On(const event::BitsDiffer& e);
  void On(const event::CopiesDiffer& e);
  void On(const event::RunFailed& e);
  void On(const event::RunFinished& e);
  void On(const event::RunStopped& e);

  /// Of a worker, or of an agent with an empty name.
  void Lose(const std::string& worker, const std::string& node, const std::string& host, const std::string& what,
            const std::string& cause);
  /// Of a worker that is lost: its own, or its node's. Empty if there is none.
  std::string IncidentOf(const std::string& worker, const std::string& node) const;
  void TellIf(const std::function<bool(const Loss&)>& is_due);
  void TellAll() {
    TellIf([](const Loss&) { return true; });
  }
  void Tell(const Loss& loss);
  void Begin(const std::string& incident, Alert::Severity severity, const std::string& source, const std::string& what);
  void End(const std::string& incident, const std::string& how);
  void EndAll(const std::string& how);
  void EndWell(const char* how, const std::string& reason);

  Alert Make(Alert::Action action, Alert::Severity severity, const std::string& incident,
             const std::string& what) const;

  AlertedRun run_;
  Time now_;  // of the event at hand
  std::map<std::string, Incident> open_;
  std::multiset<std::string> nodes_;    // of incidents
  std::map<std::string, Loss> losses_;  // by node
  std::map<std::string, Away> away_;    // by worker: all of the incidents and losses
  LeavingNodes leaving_;
  int failed_checkpoints_ = 0;  // since the last that exists
  int64_t saved_step_ = 0;      // of that; 0 = not known
  std::vector<Alert> alerts_;   // of the event at hand
};

}  // namespace holdfast
