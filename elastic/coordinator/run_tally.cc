#include "elastic/coordinator/run_tally.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/limits.h"

namespace holdfast {

void RunTally::OnEvent(double time, const RunEvent& event) {
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { On(time, e); }) On(time, e);
        if constexpr (requires { leaving_.On(e); }) leaving_.On(e);
      },
      event);
}

void RunTally::OnStep(RecentRate::Time now, const StepMetrics& step) {
  // A run that went back counts from there.
  if (last_.has_value() && step.step <= last_->step) steps_ = RecentRate();
  steps_.Add(now, step.step);
  last_ = step;
}

// The run has stood still since its last sign of life, which was in the world that it is a member of.
void RunTally::On(double time, const event::WorkerHung& e) {
  if (e.rank < 0 || leaving_.Has(e.node)) return;
  const double since = std::max(trouble_ended_, time - e.seconds);
  trouble_since_ = std::min(trouble_since_.value_or(since), since);
}

void RunTally::On(double time, const event::WorkerLost& e) {
  const std::string where = e.host.empty() ? "" : absl::StrCat(" on ", e.host);
  ForgetMissing(e.worker);
  missing_[e.worker] = {time, absl::StrCat(where, ": ", e.cause)};
  missing_since_.emplace(time, e.worker);
  // Hosts may have a new name each time.
  if (missing_.size() > kMaxWorkers) ForgetMissing(std::string(missing_since_.begin()->second));
  if (leaving_.Has(e.node)) return;  // it was told to go
  ++workers_lost_;
  TroubleBegins(time);
}

void RunTally::ForgetMissing(const std::string& worker) {
  const auto found = missing_.find(worker);
  if (found == missing_.end()) return;
  missing_since_.erase({found->second.since, worker});
  missing_.erase(found);
}

// Who is missing afterwards, the next life will find out.
void RunTally::On(double time, const event::EndFields&) {
  TroubleEnds(time);
  missing_.clear();
  missing_since_.clear();
  leaving_ = {};
}

void RunTally::TroubleBegins(double time) {
  if (!trouble_since_.has_value()) trouble_since_ = time;
}

void RunTally::TroubleEnds(double time) {
  if (trouble_since_.has_value()) lost_seconds_ += std::max(0.0, time - *trouble_since_);  // a clock may be put back
  trouble_since_.reset();
  trouble_ended_ = time;
}

RunFigures RunTally::Figures(double time, RecentRate::Time now, int64_t world_size, int64_t wanted_workers) const {
  RunFigures figures{.wanted_workers = wanted_workers, .workers_lost = workers_lost_, .lost_seconds = lost_seconds_};
  if (trouble_since_.has_value()) figures.lost_seconds += std::max(0.0, time - *trouble_since_);
  if (last_.has_value()) {
    figures.loss = static_cast<double>(last_->loss);
    figures.tokens = last_->tokens;
    figures.tokens_per_second = last_->tokens_per_second;
    figures.steps_per_second = steps_.PerSecond(now);
  }
  // Others may have taken the places of those that were lost first.
  std::vector<std::pair<std::string, Missing>> missing(missing_.begin(), missing_.end());
  std::stable_sort(missing.begin(), missing.end(),
                   [](const auto& a, const auto& b) { return a.second.since > b.second.since; });
  missing.resize(
      static_cast<size_t>(std::clamp<int64_t>(wanted_workers - world_size, 0, static_cast<int64_t>(missing.size()))));
  for (const auto& [worker, loss] : missing) figures.missing.push_back(worker + loss.where_and_why);
  return figures;
}

}  // namespace holdfast
