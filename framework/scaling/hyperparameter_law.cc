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

struct Group {
  RunSize size;
  std::map<double, double> losses;  // by value, the lowest
};

std::vector<Group> GroupsOf(absl::Span<const Observation> runs, Hyperparameter which) {
  std::vector<Group> groups;
  for (const Observation& run : runs) {
    const std::optional<double>& value = ValueOf(run, which);
    if (!value.has_value()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return Alike(g.size, run.size); });
    if (group == groups.end()) group = groups.insert(groups.end(), {.size = run.size, .losses = {}});
    const auto [loss, is_new] = group->losses.emplace(*value, run.loss);
    if (!is_new) loss->second = std::min(loss->second, run.loss);
  }
  return groups;
}

std::optional<BestOfSize> BestOf(const Group& group) {
  BestOfSize best{.size = group.size, .tried = {}, .losses = {}};
  std::vector<double> logs;
  for (const auto& [value, loss] : group.losses) {
    logs.push_back(std::log(value));
    best.tried.push_back(value);
    best.losses.push_back(loss);
  }
  const std::optional<Parabola> parabola = FitParabola(logs, best.losses);
  if (!parabola.has_value()) return std::nullopt;
  best.best = std::exp(parabola->x_min);
  best.loss = parabola->y_min;
  best.inside = parabola->x_min >= logs.front() && parabola->x_min <= logs.back();
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
  struct Losses {
    double sum = 0;
    int count = 0;
    double mean() const { return sum / count; }
  };
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
    Losses& losses = group->losses[chosen(i)];
    losses.sum += runs[i].loss;
    ++losses.count;
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
