// Asynchronous successive halving (ASHA; Li et al. 2020, arXiv 1810.05934, algorithm 2): whenever a worker is free, the
// best trial that is among the best 1 / reduction of its rung is continued at the next, the highest rung first; where
// there is none, a new point begins at rung 0.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/search/history.h"
#include "framework/search/strategies.h"

namespace holdfast::search {
namespace {

class Halving : public SearchStrategy {
 public:
  Halving(SearchSpace space, const StrategyOptions& options)
      : space_(std::move(space)), seed_(options.seed), rungs_(options.rungs), reduction_(options.reduction) {}

  std::optional<Suggestion> Next(absl::Span<const Observation> history) const override {
    for (int64_t rung = rungs_ - 1; rung-- > 0;) {
      if (auto promoted = Promotion(history, rung)) return promoted;
    }
    std::optional<Point> point = NextSpread(space_, seed_, history);
    if (!point.has_value()) return std::nullopt;
    return Suggestion{.point = *std::move(point), .why = "a new point at rung 0: no trial is due at a higher one"};
  }

 private:
  std::optional<Suggestion> Promotion(absl::Span<const Observation> history, int64_t rung) const {
    std::set<int64_t> continued;
    std::vector<const Observation*> measured;
    int64_t ended = 0;  // with those that failed: they are the worst. One that was refused has taken nobody's place
    for (const Observation& one : history) {
      if (one.continues.has_value()) continued.insert(*one.continues);
      if (one.rung != rung || IsRunning(one) || one.outcome == TrialOutcome::kRefused) continue;
      if (!space_.ToUnit(one.point).ok()) continue;
      ++ended;
      if (IsMeasured(one)) measured.push_back(&one);
    }
    std::sort(measured.begin(), measured.end(), [](const Observation* a, const Observation* b) {
      return std::pair(a->value, a->trial) < std::pair(b->value, b->trial);
    });
    const auto best = static_cast<size_t>(static_cast<double>(ended) / reduction_);
    for (size_t i = 0; i < std::min(best, measured.size()); ++i) {
      const Observation& one = *measured[i];
      if (continued.contains(one.trial)) continue;
      return Suggestion{.point = one.point,
                        .rung = rung + 1,
                        .continues = one.trial,
                        .why = absl::StrCat("trial ", one.trial, " is number ", i + 1, " of the ", ended,
                                            " that ended rung ", rung, ", of which ", best, " are continued")};
    }
    return std::nullopt;
  }

  SearchSpace space_;
  uint64_t seed_;
  int64_t rungs_;
  double reduction_;
};

}  // namespace

std::unique_ptr<SearchStrategy> MakeHalving(const SearchSpace& space, const StrategyOptions& options) {
  return std::make_unique<Halving>(space, options);
}

}  // namespace holdfast::search
