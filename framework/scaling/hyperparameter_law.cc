#include "framework/scaling/hyperparameter_law.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace holdfast {
namespace {

const std::optional<double>& ValueOf(const Observation& run, Hyperparameter which) {
  return which == Hyperparameter::kLearningRate ? run.learning_rate : run.batch_tokens;
}

bool Alike(double a, double b) { return std::abs(a - b) <= 1e-3 * std::max(a, b); }

bool Alike(const RunSize& a, const RunSize& b) {
  return Alike(a.parameters, b.parameters) && Alike(a.active, b.active) && Alike(a.tokens, b.tokens);
}

/// Of runs that differ in nothing that is known, as in their seed. A lucky one must not count for all.
struct Losses {
  double sum = 0;
  int count = 0;
  void Add(double loss) { sum += loss, ++count; }
  double mean() const { return sum / count; }
};

struct Group {
  RunSize size;
  std::map<double, std::map<std::optional<double>, Losses>> losses;  // by value, then by that of the other one
};

std::vector<Group> GroupsOf(absl::Span<const Observation> runs, Hyperparameter which) {
  const Hyperparameter other =
      which == Hyperparameter::kLearningRate ? Hyperparameter::kBatchTokens : Hyperparameter::kLearningRate;
  std::vector<Group> groups;
  for (const Observation& run : runs) {
    const std::optional<double>& value = ValueOf(run, which);
    if (!value.has_value()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return Alike(g.size, run.size); });
    if (group == groups.end()) group = groups.insert(groups.end(), {.size = run.size, .losses = {}});
    group->losses[*value][ValueOf(run, other)].Add(run.loss);
  }
  return groups;
}

/// The values about that of the lowest loss, as first and last: a loss is a parabola there alone, and one of a rate far
/// too high has no bounds. Those within a factor of 4, but at least the next on either side, and three.
std::pair<size_t, size_t> NearTheLowest(const std::vector<double>& logs, const std::vector<double>& losses) {
  const auto at = static_cast<size_t>(std::min_element(losses.begin(), losses.end()) - losses.begin());
  const double reach = std::log(4) * (1 + 1e-9);
  const size_t last = logs.size() - 1;
  size_t low = std::min(at - std::min<size_t>(at, 1), last - std::min<size_t>(last, 2));
  size_t high = std::min(std::max<size_t>(at + 1, 2), last);
  while (low > 0 && logs[at] - logs[low - 1] <= reach) --low;
  while (high < last && logs[high + 1] - logs[at] <= reach) ++high;
  return {low, high};
}

std::optional<BestOfSize> BestOf(const Group& group) {
  BestOfSize best{.size = group.size, .tried = {}, .losses = {}};
  std::vector<double> logs;
  for (const auto& [value, by_other] : group.losses) {
    const auto lowest = std::min_element(by_other.begin(), by_other.end(), [](const auto& a, const auto& b) {
      return a.second.mean() < b.second.mean();
    });
    logs.push_back(std::log(value));
    best.tried.push_back(value);
    best.losses.push_back(lowest->second.mean());
  }
  const auto [low, high] = NearTheLowest(logs, best.losses);
  const size_t near = high - low + 1;
  const std::optional<Parabola> parabola =
      FitParabola(absl::MakeConstSpan(logs).subspan(low, near), absl::MakeConstSpan(best.losses).subspan(low, near));
  if (!parabola.has_value()) return std::nullopt;
  best.best = std::exp(parabola->x_min);
  best.loss = parabola->y_min;
  best.inside = parabola->x_min >= logs[low] && parabola->x_min <= logs[high];
  return best;
}

}  // namespace

const char* NameOf(Hyperparameter which) {
  return which == Hyperparameter::kLearningRate ? "learning_rate" : "batch_tokens";
}

HyperparameterLaw FindHyperparameterLaw(absl::Span<const Observation> runs, Hyperparameter which) {
  HyperparameterLaw found;
  for (const Group& group : GroupsOf(runs, which)) {
    if (auto best = BestOf(group); best.has_value()) found.sizes.push_back(*std::move(best));
  }
  std::vector<std::vector<double>> over_both, over_size;
  std::vector<double> values;
  for (const BestOfSize& size : found.sizes) {
    if (!size.inside) continue;
    over_both.push_back({size.size.active, size.size.tokens});
    over_size.push_back({size.size.active});
    values.push_back(size.best);
  }
  if (values.size() >= 3) found.law = FitPowerLaw(over_both, values);
  found.over_tokens = found.law.has_value();
  if (!found.law.has_value() && values.size() >= 2) found.law = FitPowerLaw(over_size, values);
  return found;
}

std::vector<Observation> WithBestHyperparameters(absl::Span<const Observation> runs) {
  using Chosen = std::pair<std::optional<double>, std::optional<double>>;  // learning rate, tokens of a step
  struct SizeGroup {
    RunSize size;
    std::map<Chosen, Losses> losses;
    std::vector<size_t> runs;
  };
  const auto chosen = [&](size_t run) { return Chosen(runs[run].learning_rate, runs[run].batch_tokens); };
  std::vector<SizeGroup> groups;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const SizeGroup& g) { return Alike(g.size, runs[i].size); });
    if (group == groups.end()) group = groups.insert(groups.end(), {.size = runs[i].size, .losses = {}, .runs = {}});
    group->losses[chosen(i)].Add(runs[i].loss);
    group->runs.push_back(i);
  }
  std::vector<size_t> kept;
  for (const SizeGroup& group : groups) {
    const auto best = std::min_element(group.losses.begin(), group.losses.end(),
                                       [](const auto& a, const auto& b) { return a.second.mean() < b.second.mean(); });
    for (const size_t run : group.runs) {
      if (chosen(run) == best->first) kept.push_back(run);
    }
  }
  std::sort(kept.begin(), kept.end());
  std::vector<Observation> best;
  best.reserve(kept.size());
  for (const size_t run : kept) best.push_back(runs[run]);
  return best;
}

}  // namespace holdfast
