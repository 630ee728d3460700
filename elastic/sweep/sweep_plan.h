#pragma once
// Which trials a sweep makes, in what order. Pure: what follows from the results that are known, and from nothing else.
//
// A search that asks for the next trial whenever one ends would depend on how fast machines are. So trials run on a
// clock that counts their work, not seconds: `parallel` of them at a time, each for as long as its FLOPs say, and the
// strategy is asked when one ends on that clock, with the results of those that have ended there. A trial that is
// not finished yet, but whose end on that clock is next, is waited for. So the same trials come with one worker and
// with a hundred, and again after any failure; a sweep that was killed is taken up by telling a new plan its results.
//
// Thread-safety: none.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/sweep/sweep_config.h"
#include "elastic/sweep/trial_setup.h"
#include "framework/search/strategy.h"

namespace holdfast {

struct TrialResult {
  bool measured = false;  // else it failed: `reason` says how
  double value = 0;       // of the metric
  int64_t steps = 0;      // of its run, when it ended: fewer than were planned where it diverged
  double seconds = 0;     // of workers, for the steps that no earlier trial had done
  std::string reason{};
};

struct PlannedTrial {
  int64_t number = 0;  // from 0
  search::Suggestion suggestion;
  std::optional<TrialSetup> setup;  // nothing: the config was refused, `result` says why
  int64_t first_step = 0;           // steps up to here are those of an earlier trial
  double begins = 0, ends = 0;      // on the clock, in FLOPs
  bool ended = false;               // there; `result` is known then, and may be before
  std::optional<TrialResult> result;

  int64_t own_steps() const { return setup->steps() - first_step; }
};

class SweepPlan {
 public:
  using SetUpFn = std::function<absl::StatusOr<TrialSetup>(const search::Point& point, int64_t rung)>;

  /// `config` and `strategy` must outlive the plan.
  SweepPlan(const SweepConfig& config, const search::SearchStrategy& strategy, SetUpFn set_up);

  /// The result of a trial that has none.
  void Tell(int64_t number, TrialResult result);

  /// By number. Those that have not ended are at most `parallel`. A trial stays where it is.
  const std::deque<PlannedTrial>& trials() const { return trials_; }
  /// How many of them have a result.
  int64_t results() const;
  /// Nothing more is to be done.
  bool done() const { return done_; }
  /// Why the next trial could not be set up, where its config is not to blame (a store that does not answer, a file
  /// that is missing): the plan stands still then, for the search would go on differently.
  const absl::Status& status() const { return status_; }
  /// Why no more trials come, a sentence; empty while they may.
  const std::string& end() const { return end_; }
  /// Of enough trials to know every one has failed, or, of a space that is no grid, been refused by its config.
  bool hopeless() const { return hopeless_; }

  /// What has been spent: of trials that have ended, and what those that have not are expected to.
  struct Spent {
    double flops = 0, tokens = 0, seconds = 0, money = 0;
  };
  Spent spent() const;
  /// How much of the budget that is nearest to its end is spent, in [0, 1]; the points of a grid are one, too.
  double share_of_budget() const;
  /// The measured trial with the best value, of those at the highest rung that has any; null if there is none.
  const PlannedTrial* best() const;
  /// The same, with those that have not ended on the clock and whose result is known.
  const PlannedTrial* best_known() const;

 private:
  void Advance();
  int64_t CountBegun() const;
  bool SuggestOne();
  void CheckHope();
  bool IsPaidFor(const PlannedTrial& trial);
  void Add(PlannedTrial trial);
  /// A trial as the search knows it: all that changes of it is known when it has ended.
  search::Observation ObservationOf(const PlannedTrial& trial) const;
  double CostOf(const PlannedTrial& trial) const;

  const SweepConfig& config_;
  const search::SearchStrategy& strategy_;
  const SetUpFn set_up_;
  std::deque<PlannedTrial> trials_;
  std::vector<search::Observation> history_;       // of each of them
  std::map<uint64_t, std::set<int64_t>> lengths_;  // of the trials of each curve
  double now_ = 0;
  bool done_ = false, hopeless_ = false;
  std::string end_;
  absl::Status status_;
  double points_ = 0;  // of a grid; else 0
  int64_t refused_in_a_row_ = 0;
};

}  // namespace holdfast
