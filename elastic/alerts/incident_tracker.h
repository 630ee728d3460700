#pragma once
// From the events of a run to alerts: one when an incident begins, one when it is over, none in between. Pure: events
// in, alerts out.
//
//   incident            begins with                  is over with
//   worker/NAME         worker_hung, worker_lost     the first step of a world that NAME was there for; the run's end
//   straggler/NAME      straggler                    straggler_resolved, worker_lost; the run's end
//   progress            no_progress                  recovered; the run's end
//   state               state_missing, state_lost,   recovered; the run's end
//                       rewind
//   bits                bits_differ                  recovered; the run's end
//   size                too_few_workers              recovered; the run's end
//   disk                paused                       resumed; the run's end
//   coordinator         coordinator_changed          recovered; the run's end
//   link/HOST/HOST      link_cut                     link_back; the run's end
//   pace                step_slow                    step_slow_resolved; the run's end
//   slow_link           link_slow                    step_slow_resolved; the run's end
//   run                 run_failed                   a person's doing
//   (news)              run_finished, run_stopped
//
// A worker that hangs is removed and so lost: one incident. Keys carry the run's name, so a coordinator that was
// started again opens no second incident for what is still open. What becomes of the workers of a node that was told to
// leave is no incident.
//
// Thread-safety: none.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/alerts/alert.h"
#include "elastic/control/run_event.h"

namespace holdfast {

class IncidentTracker {
 public:
  explicit IncidentTracker(std::string run_name) : run_name_(std::move(run_name)) {}

  /// In the order in which they are to be sent.
  std::vector<Alert> OnEvent(const RunEvent& event);

 private:
  enum class Stage {  // of a worker's return
    kGone,
    kJoined,    // waits to be taken in
    kAdmitted,  // the next world has been published since
  };
  struct Incident {
    Alert trigger;
    Stage stage = Stage::kGone;
  };

  // Other events are nothing to act on.
  void On(const event::NodeLeaving& e);
  void On(const event::NodeReturned& e);
  void On(const event::WorkerHung& e);
  void On(const event::WorkerLost& e);
  void On(const event::WorkerJoined& e);
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
  void On(const event::StateFields& e);  // missing or lost
  void On(const event::Rewind& e);
  void On(const event::BitsDiffer& e);
  void On(const event::RunFailed& e);
  void On(const event::RunFinished& e);
  void On(const event::RunStopped& e);

  void Begin(const std::string& incident, Alert::Severity severity, const std::string& source, const std::string& what);
  void End(const std::string& incident, const std::string& how);
  void EndAll(const std::string& how);
  void EndWell(const char* how, const std::string& reason);

  std::string Key(const std::string& incident) const;
  std::string Sentence(const std::string& what) const;

  std::string run_name_;
  std::map<std::string, Incident> open_;
  std::set<std::string> leaving_;  // nodes
  std::vector<Alert> alerts_;      // of the event at hand
};

}  // namespace holdfast
