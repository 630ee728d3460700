#include "elastic/sweep/sweep_plan.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kEnoughFailures = 5;     // of trials that began, from the first one on
constexpr int64_t kEnoughRefused = 1'000;  // one after the other, by their configs: a space may have hardly any others

/// Steps of the trial that are its own: done, or, while nobody knows, planned.
double StepsOf(const PlannedTrial& trial) {
  if (!trial.setup.has_value()) return 0;
  const int64_t end = trial.result.has_value() ? trial.result->steps : trial.setup->steps();
  return static_cast<double>(std::max<int64_t>(0, end - trial.first_step));
}

std::string HowAllFailed(int64_t failed, int64_t refused) {
  if (failed == 0) return absl::StrCat("all ", refused, " trials have been refused by their config");
  return absl::StrCat("all ", failed, " trials ", refused == 0 ? "" : "that began ", "have failed",
                      refused == 0 ? "" : absl::StrCat(", and ", refused, " more have been refused by their config"));
}

/// The same config is refused whenever it is looked at.
bool IsOfConfig(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) || IsOutOfMemory(status) ||
         absl::IsOutOfRange(status) || absl::IsUnimplemented(status);
}

const PlannedTrial* BestOf(const std::deque<PlannedTrial>& trials, bool maximize,
                           absl::FunctionRef<bool(const PlannedTrial&)> counts) {
  const PlannedTrial* best = nullptr;
  for (const PlannedTrial& trial : trials) {
    if (!counts(trial) || !trial.result->measured) continue;
    const bool higher = best == nullptr || trial.suggestion.rung > best->suggestion.rung;
    const bool better =
        best != nullptr && trial.suggestion.rung == best->suggestion.rung &&
        (maximize ? trial.result->value > best->result->value : trial.result->value < best->result->value);
    if (higher || better) best = &trial;
  }
  return best;
}

}  // namespace

SweepPlan::SweepPlan(const SweepConfig& config, const search::SearchStrategy& strategy, SetUpFn set_up)
    : config_(config), strategy_(strategy), set_up_(std::move(set_up)) {
  if (config.strategy.name == "grid") {
    const absl::StatusOr<search::SearchSpace> space = search::SearchSpace::Create(config.space);
    if (space.ok()) points_ = static_cast<double>(space->GridCount().value_or(0));
  }
  Advance();
}

void SweepPlan::Tell(int64_t number, TrialResult result) {
  trials_[static_cast<size_t>(number)].result = std::move(result);
  Advance();
}

int64_t SweepPlan::results() const {
  return std::count_if(trials_.begin(), trials_.end(),
                       [](const PlannedTrial& trial) { return trial.result.has_value(); });
}

void SweepPlan::Advance() {
  while (!done_ && status_.ok()) {
    const auto running =
        std::count_if(trials_.begin(), trials_.end(), [](const PlannedTrial& trial) { return !trial.ended; });
    if (running < config_.parallel && end_.empty() && SuggestOne()) continue;
    PlannedTrial* next = nullptr;
    for (PlannedTrial& trial : trials_) {
      if (!trial.ended && (next == nullptr || trial.ends < next->ends)) next = &trial;
    }
    if (next == nullptr) {
      done_ = true;
    } else if (next->result.has_value()) {
      next->ended = true;
      history_[static_cast<size_t>(next->number)] = ObservationOf(*next);
      now_ = next->ends;
      CheckHope();
    } else {
      return;
    }
  }
}

int64_t SweepPlan::CountBegun() const {
  return std::count_if(trials_.begin(), trials_.end(),
                       [](const PlannedTrial& trial) { return trial.setup.has_value(); });
}

bool SweepPlan::SuggestOne() {
  if (config_.budget.trials > 0 && CountBegun() >= config_.budget.trials) {
    end_ = absl::StrCat("budget.trials, ", config_.budget.trials, ", is reached");
    return false;
  }
  std::optional<search::Suggestion> suggestion = strategy_.Next(history_);
  if (!suggestion.has_value()) {
    const bool all_ended =
        std::all_of(trials_.begin(), trials_.end(), [](const PlannedTrial& trial) { return trial.ended; });
    if (all_ended) end_ = "there is nothing more to try";
    return false;
  }
  PlannedTrial trial;
  trial.number = static_cast<int64_t>(trials_.size());
  trial.suggestion = *std::move(suggestion);
  trial.begins = trial.ends = now_;
  absl::StatusOr<TrialSetup> setup = set_up_(trial.suggestion.point, trial.suggestion.rung);
  if (!setup.ok() && !IsOfConfig(setup.status())) {
    status_ = Annotate(setup.status(),
                       absl::StrCat("trial ", trial.number, " {", search::PointText(trial.suggestion.point), "}"));
    return false;
  }
  if (!setup.ok()) {
    trial.result = TrialResult{.reason = std::string(setup.status().message())};
    Add(std::move(trial));
    if (++refused_in_a_row_ < kEnoughRefused || points_ > 0) return true;  // a grid has an end
    end_ = absl::StrCat(refused_in_a_row_, " trials one after the other have been refused by their config");
    return false;
  }
  refused_in_a_row_ = 0;
  trial.setup = *std::move(setup);
  std::set<int64_t>& lengths = lengths_[trial.setup->digest];
  // A run can be taken up where it is, not where it has been.
  const auto reached_of = [this](const TrialSetup& curve) {
    const std::set<int64_t>& known = lengths_[curve.digest];
    const int64_t reached = known.empty() ? 0 : *known.rbegin();
    return reached <= curve.steps() ? reached : 0;
  };
  const TrialSetup* const trunk = trial.setup->trunk.get();
  if (lengths.contains(trial.setup->steps())) {
    trial.first_step = trial.setup->steps();
  } else {
    trial.first_step = reached_of(*trial.setup);
    if (trial.first_step == 0 && trunk != nullptr) trial.first_step = reached_of(*trunk);
  }
  trial.ends = now_ + static_cast<double>(trial.own_steps()) * trial.setup->flops_per_step;
  if (!IsPaidFor(trial)) return false;
  lengths.insert(trial.setup->steps());
  if (trunk != nullptr && trial.first_step <= trunk->steps()) lengths_[trunk->digest].insert(trunk->steps());
  Add(std::move(trial));
  return true;
}

void SweepPlan::Add(PlannedTrial trial) {
  history_.push_back(ObservationOf(trial));
  trials_.push_back(std::move(trial));
}

bool SweepPlan::IsPaidFor(const PlannedTrial& trial) {
  const SweepBudget& budget = config_.budget;
  const Spent spent = this->spent();
  const auto own = static_cast<double>(trial.own_steps());
  const auto exceeds = [this](double limit, double would_be, const char* name) {
    if (limit > 0 && would_be > limit && end_.empty()) {
      end_ = absl::StrCat("the next trial does not fit into budget.", name);
    }
  };
  exceeds(budget.flops, spent.flops + own * trial.setup->flops_per_step, "flops");
  exceeds(budget.tokens, spent.tokens + own * trial.setup->tokens_per_step, "tokens");
  // What it will take is not known: the last one may exceed these.
  if (budget.seconds > 0 && spent.seconds >= budget.seconds) end_ = "budget.seconds is spent";
  if (budget.money > 0 && spent.money >= budget.money) end_ = "budget.money is spent";
  return end_.empty();
}

// A trial that its config refuses costs nothing, and says nothing of the others: in a grid all with the first choice
// may be refused, and all others good.
void SweepPlan::CheckHope() {
  int64_t failed = 0, refused = 0;
  for (const PlannedTrial& trial : trials_) {
    if (trial.ended && trial.result->measured) {
      if (hopeless_) end_.clear();  // it was under way when the others had failed
      hopeless_ = false;
      return;
    }
    (trial.setup.has_value() ? failed : refused) += trial.ended ? 1 : 0;
  }
  const bool none_fits = points_ == 0 && refused_in_a_row_ >= kEnoughRefused;
  if (failed < kEnoughFailures && !none_fits) return;
  hopeless_ = true;
  end_ = HowAllFailed(failed, refused);
}

search::Observation SweepPlan::ObservationOf(const PlannedTrial& trial) const {
  search::Observation seen{.trial = trial.number,
                           .point = trial.suggestion.point,
                           .rung = trial.suggestion.rung,
                           .continues = trial.suggestion.continues,
                           .outcome = search::TrialOutcome::kRunning,
                           .value = 0,
                           .cost = CostOf(trial)};
  if (trial.ended) {
    seen.outcome = trial.result->measured    ? search::TrialOutcome::kMeasured
                   : trial.setup.has_value() ? search::TrialOutcome::kFailed
                                             : search::TrialOutcome::kRefused;
    seen.value = config_.maximize ? -trial.result->value : trial.result->value;
  }
  return seen;
}

double SweepPlan::CostOf(const PlannedTrial& trial) const {
  if (!trial.setup.has_value()) return 0;
  // What is known of a trial before its end on the clock must not show.
  const double steps = trial.ended ? StepsOf(trial) : static_cast<double>(trial.own_steps());
  switch (config_.cost) {
    case CostKind::kFlops:
      return steps * trial.setup->flops_per_step;
    case CostKind::kTokens:
      return steps * trial.setup->tokens_per_step;
    case CostKind::kSeconds:
      return trial.ended ? trial.result->seconds : 0;
  }
  return 0;
}

SweepPlan::Spent SweepPlan::spent() const {
  Spent spent;
  for (const PlannedTrial& trial : trials_) {
    if (!trial.setup.has_value()) continue;
    const double steps = trial.ended ? StepsOf(trial) : static_cast<double>(trial.own_steps());
    spent.flops += steps * trial.setup->flops_per_step;
    spent.tokens += steps * trial.setup->tokens_per_step;
    if (trial.ended) spent.seconds += trial.result->seconds;
  }
  spent.money = spent.seconds / 3600 * config_.budget.price_per_hour;
  return spent;
}

double SweepPlan::share_of_budget() const {
  const SweepBudget& budget = config_.budget;
  const Spent all = spent();
  double share = 0;
  const auto add = [&share](double limit, double used) {
    if (limit > 0) share = std::max(share, std::min(1.0, used / limit));
  };
  const auto ended = std::count_if(trials_.begin(), trials_.end(), [](const PlannedTrial& t) { return t.ended; });
  const auto begun = std::count_if(trials_.begin(), trials_.end(),
                                   [](const PlannedTrial& t) { return t.ended && t.setup.has_value(); });
  add(static_cast<double>(budget.trials), static_cast<double>(begun));
  add(points_, static_cast<double>(ended));
  add(budget.flops, all.flops);
  add(budget.tokens, all.tokens);
  add(budget.seconds, all.seconds);
  add(budget.money, all.money);
  return share;
}

const PlannedTrial* SweepPlan::best() const {
  return BestOf(trials_, config_.maximize, [](const PlannedTrial& trial) { return trial.ended; });
}

const PlannedTrial* SweepPlan::best_known() const {
  return BestOf(trials_, config_.maximize, [](const PlannedTrial& trial) { return trial.result.has_value(); });
}

}  // namespace holdfast
