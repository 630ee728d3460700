#pragma once
// What a run has done and lost so far, in all its lives: from its events, those of events.jsonl first, and its steps.
// Pure: the time comes with each.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "elastic/control/leaving_nodes.h"
#include "elastic/control/run_event.h"
#include "elastic/control/run_status.h"
#include "framework/metrics/recent_rate.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Thread-safety: none.
class RunTally {
 public:
  /// `time`: seconds since 1970.
  void OnEvent(double time, const RunEvent& event);
  void OnStep(RecentRate::Time now, const StepMetrics& step);

  /// Of a run that has `world_size` of the workers that it is to have.
  RunFigures Figures(double time, RecentRate::Time now, int64_t world_size, int64_t wanted_workers) const;

 private:
  struct Missing {
    double since = 0;
    std::string where_and_why;
  };

  // Other events say nothing of it.
  void On(double time, const event::WorkerHung& e);
  void On(double time, const event::WorkerLost& e);
  void On(double, const event::WorkerJoined& e) { ForgetMissing(e.worker); }
  void On(double time, const event::StepFailed&) { TroubleBegins(time); }
  void On(double time, const event::NoProgress&) { TroubleBegins(time); }
  void On(double time, const event::TooFewWorkers&) { TroubleBegins(time); }
  void On(double time, const event::CoordinatorChanged&) { TroubleBegins(time); }
  void On(double time, const event::Paused&) { TroubleBegins(time); }
  void On(double time, const event::Resumed&) { TroubleEnds(time); }
  void On(double time, const event::Recovered&) { TroubleEnds(time); }
  void On(double time, const event::EndFields&);

  void ForgetMissing(const std::string& worker);
  void TroubleBegins(double time);
  void TroubleEnds(double time);

  int64_t workers_lost_ = 0;
  double lost_seconds_ = 0;
  std::optional<double> trouble_since_;
  double trouble_ended_ = 0;
  std::map<std::string, Missing> missing_;                  // by worker
  std::set<std::pair<double, std::string>> missing_since_;  // the same: since when, and who
  LeavingNodes leaving_;
  std::optional<StepMetrics> last_;
  RecentRate steps_;
};

}  // namespace holdfast
