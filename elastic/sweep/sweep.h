#pragma once
// A sweep at work: the trials of its plan as runs of their own, on workers that they share.
//
//   SWEEP_DIR/sweep.yaml      what it was asked
//   SWEEP_DIR/results.jsonl   a line for each trial that has a result (sweep_record.h)
//   SWEEP_DIR/runs/DIGEST/    the run of a curve, as `holdfast train` leaves it; sweeps with the same `runs` share them
//
// It may be stopped, killed and started again at any time: what is in results.jsonl is not done again, runs are taken
// up at their checkpoints, and the trials are the same ones.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/sweep/sweep_config.h"
#include "elastic/sweep/sweep_plan.h"
#include "elastic/sweep/trial_setup.h"

namespace holdfast {

/// What is told of a sweep at work. All are called by the thread that runs it.
class SweepObserver {
 public:
  struct Running {
    const PlannedTrial* trial;
    int64_t workers, step;
  };

  virtual ~SweepObserver() = default;
  /// The steps after `from_step`, up to `to_step`, are trained now.
  virtual void OnTrialBegins(const PlannedTrial& trial, int64_t from_step, int64_t to_step) = 0;
  virtual void OnTrialEnds(const SweepPlan& plan, const PlannedTrial& trial, bool reused) = 0;
  /// About once a second.
  virtual void OnStatus(const SweepPlan& plan, const std::vector<Running>& running) = 0;
};

/// What a progress line says: "9 trials done, trial 9: 3/12 on 2, 10: 1/12 on 1".
std::string StatusText(const SweepPlan& plan, const std::vector<SweepObserver::Running>& running);

struct SweepPlace {
  std::string directory;
  std::string binary = "/proc/self/exe";

  std::string config() const { return directory + "/sweep.yaml"; }
  std::string results() const { return directory + "/results.jsonl"; }
  std::string runs(const SweepConfig& config) const { return config.runs.empty() ? directory + "/runs" : config.runs; }
  /// Of the curve that a trial is the beginning of.
  std::string run(const SweepConfig& config, const TrialSetup& setup) const;
};

/// What of a trial is to be trained next: itself, or the curve that it leaves, if its run has not begun.
const TrialSetup& NextOf(const SweepConfig& config, const SweepPlace& place, const TrialSetup& trial);

/// Whether a sweep has begun in the directory.
bool HoldsSweep(const SweepPlace& place);

/// A plan that knows all results that are recorded. FailedPrecondition if the record is one of another sweep.
absl::StatusOr<std::unique_ptr<SweepPlan>> TakeUpPlan(const SweepConfig& config, const search::SearchStrategy& strategy,
                                                      const SweepPlace& place, SweepPlan::SetUpFn set_up);

/// Tells such a plan what has been recorded since; only trials that follow from that are set up. FailedPrecondition if
/// the record is one of another sweep, or a new one.
absl::Status TellRecorded(const SweepPlace& place, SweepPlan& plan);

/// Until the plan is done, or `stopped` says 128 + signal: then trials save and end, too. 0 or that. The
/// caller holds the directory's lock, and `is_ours` says FailedPrecondition once another process has taken it: trials
/// save and end, nothing is recorded any more, and that is what is returned, as Aborted. An error is one of the sweep;
/// a trial that fails is a result.
absl::StatusOr<int> RunSweep(const SweepConfig& config, const SweepPlace& place, SweepPlan& plan,
                             SweepObserver& observer, const std::function<int()>& stopped,
                             const std::function<absl::Status()>& is_ours);

}  // namespace holdfast
