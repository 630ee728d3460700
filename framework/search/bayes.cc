// Bayesian search. A Gaussian process of the values says what a point would give; the next point is the one whose
// improvement is expected to be largest. With costs that differ it is that of CARBS (Fetterman et al. 2023, arXiv
// 2306.08055): candidates around points of the Pareto front of cost and value. Each trial aims at a cost, and is the
// one that is expected to improve most on what is known for as much or less.
//
// A failure says nothing of a value. A second process, of what failed and what did not, gives the probability that a
// point can be measured, and the expected improvement is multiplied with it (Gelbart et al. 2014, arXiv 1403.5607).
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/search/gaussian_process.h"
#include "framework/search/history.h"
#include "framework/search/low_discrepancy.h"
#include "framework/search/normal.h"
#include "framework/search/strategies.h"
#include "kernels/portable_math.h"

namespace holdfast::search {
namespace {

constexpr int64_t kListed = 1500;             // finite spaces of no more points are looked at completely
constexpr uint64_t kSpread = 400;             // candidates all over the space
constexpr uint64_t kNear = 200;               // candidates near the best
constexpr size_t kClimbed = 8;                // candidates that are improved by small changes
constexpr int kRounds = 16;                   // of such changes
constexpr double kNotDifferent = 1.01;        // ratio of costs
constexpr double kOutOfTheQuestion = -1e100;  // below every score
constexpr double kDear = 0.25;                // of the trials may cost whatever there is

/// Values for a process: those above the median are compressed, as how bad a bad point is says little of where the best
/// one is; then mean 0 and deviation 1. Order is kept.
std::vector<double> Standardised(std::vector<double> values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  double spread = median / 2 - sorted.front() / 2;  // half, as a difference of large ones is infinite
  if (!(spread > 0)) spread = sorted.back() / 2 - median / 2;
  if (!(spread > 0)) return std::vector<double>(values.size(), 0.0);
  double mean = 0, square = 0;
  for (double& value : values) {
    value = (value / 2 - median / 2) / spread;
    if (value > 1) value = 1 + portable::Log(value);
    mean += value / static_cast<double>(values.size());
  }
  for (double& value : values) value -= mean, square += value * value;
  const double deviation = std::sqrt(square / static_cast<double>(values.size()));
  for (double& value : values) value /= deviation;
  return values;
}

struct Candidate {
  Point point;
  std::string text;
  Coordinates at;
  double score = 0;
};

struct FrontPoint {
  double log_cost, value;  // value: of the process
  Coordinates at;
};

/// What the history says, as processes.
class Model {
 public:
  Model(const SearchSpace& space, absl::Span<const Observation> history) {
    for (const Dimension& dimension : space.dimensions()) different_.push_back(dimension.scale == Scale::kChoice);
    std::vector<double> values, logs, labels;
    std::vector<Coordinates> measured, ended, pending, costed;
    for (const Observation& one : history) {
      const auto at = space.ToUnit(one.point);
      if (!at.ok()) continue;
      (IsRunning(one) ? pending : ended).push_back(*at);
      if (!IsRunning(one)) labels.push_back(IsMeasured(one) ? 0.0 : -1.0);
      if (!IsMeasured(one)) continue;
      measured.push_back(*at);
      values.push_back(one.value);
      if (HasCost(one)) costed.push_back(*at), logs.push_back(portable::Log(one.cost));
    }
    value_.emplace(measured, Standardised(values), different_);
    if (*std::min_element(labels.begin(), labels.end()) < 0) possible_.emplace(std::move(ended), labels, different_);
    for (const Coordinates& at : measured) means_.push_back(value_->At(at).mean);
    best_ = measured[static_cast<size_t>(std::min_element(means_.begin(), means_.end()) - means_.begin())];
    reference_ = *std::min_element(means_.begin(), means_.end());
    if (logs.size() == measured.size()) LearnCosts(measured, logs);
    for (const Coordinates& at : pending) value_->Believe(at);
  }

  bool has_costs() const { return !front_.empty(); }

  /// Where the best is known to be; with costs, where each of the front is.
  std::vector<Coordinates> Centres() const {
    std::vector<Coordinates> centres;
    for (const FrontPoint& one : front_) centres.push_back(one.at);
    if (centres.empty()) centres.push_back(best_);
    return centres;
  }

  /// From here on what costs more than `log_cost` is out of the question, and what is known at that cost is to be
  /// bettered.
  void Aim(double log_cost) {
    most_ = log_cost;
    reference_ = front_.front().value;
    for (const FrontPoint& one : front_) {
      if (one.log_cost <= log_cost + 1e-6) reference_ = one.value;
    }
  }

  /// Logarithm of what is expected to be gained, and may be compared only.
  double Score(const Coordinates& at) const {
    if (has_costs()) {
      const double excess = LogCost(at) - most_;
      if (excess > 1e-6) return kOutOfTheQuestion - excess;
    }
    const Prediction prediction = value_->At(at);
    const double deviation = prediction.deviation, noise = value_->noise_deviation();
    // Where the noise is larger than what is not known, another trial says little (Huang et al. 2006, "Global
    // Optimization of Stochastic Black-Box Systems via Sequential Kriging Meta-Models", section 4.2).
    const double news = 1 - noise / std::sqrt(deviation * deviation + noise * noise);
    const double score = portable::Log(deviation) + portable::Log(std::max(news, 1e-12)) +
                         LogExpectedImprovement((reference_ - prediction.mean) / deviation);
    return possible_.has_value() ? score + LogPossible(at) : score;
  }

  double LogCost(const Coordinates& at) const { return cost_mean_ + cost_deviation_ * cost_->At(at).mean; }

 private:
  double LogPossible(const Coordinates& at) const {
    const Prediction prediction = possible_->At(at);  // 0: measured, -1: failed
    return LogNormalCdf((0.5 + prediction.mean) / (0.1 + prediction.deviation));
  }

  void LearnCosts(const std::vector<Coordinates>& measured, const std::vector<double>& logs) {
    const auto [low, high] = std::minmax_element(logs.begin(), logs.end());
    if (*high - *low < portable::Log(kNotDifferent)) return;
    double square = 0;
    for (const double log : logs) cost_mean_ += log / static_cast<double>(logs.size());
    for (const double log : logs) square += (log - cost_mean_) * (log - cost_mean_);
    cost_deviation_ = std::sqrt(square / static_cast<double>(logs.size()));
    std::vector<double> standard;
    for (const double log : logs) standard.push_back((log - cost_mean_) / cost_deviation_);
    cost_.emplace(measured, std::move(standard), different_);
    std::vector<FrontPoint> all;
    for (size_t i = 0; i < logs.size(); ++i) all.push_back({logs[i], means_[i], measured[i]});
    std::stable_sort(all.begin(), all.end(), [](const FrontPoint& a, const FrontPoint& b) {
      return std::pair(a.log_cost, a.value) < std::pair(b.log_cost, b.value);
    });
    for (FrontPoint& one : all) {
      if (front_.empty() || one.value < front_.back().value) front_.push_back(std::move(one));
    }
  }

  std::vector<bool> different_;
  std::optional<GaussianProcess> value_, possible_, cost_;
  std::vector<double> means_;  // of measured points
  Coordinates best_;
  double reference_ = 0, most_ = INFINITY, cost_mean_ = 0, cost_deviation_ = 1;
  std::vector<FrontPoint> front_;  // by cost, values falling
};

class Bayes : public SearchStrategy {
 public:
  Bayes(SearchSpace space, StrategyOptions options) : space_(std::move(space)), options_(std::move(options)) {
    if (options_.initial == 0) {
      options_.initial = std::min<int64_t>(12, 4 + static_cast<int64_t>(space_.dimensions().size()));
    }
  }

  std::optional<Suggestion> Next(absl::Span<const Observation> history) const override {
    int64_t measured = 0;
    for (const Observation& one : history) measured += IsMeasured(one) && space_.ToUnit(one.point).ok() ? 1 : 0;
    if (measured < options_.initial) {
      std::optional<Point> point = NextSpread(space_, options_.seed, history);
      if (!point.has_value()) return std::nullopt;
      return Suggestion{.point = *std::move(point),
                        .why = absl::StrCat("an even random spread for the first ", Counted(options_.initial, "trial"),
                                            "; ", measured, " measured")};
    }
    const std::set<std::string> tried = Tried(space_, history);
    const std::optional<int64_t> count = space_.Count();
    if (count.has_value() && static_cast<int64_t>(tried.size()) >= *count) return std::nullopt;
    Model model(space_, history);
    if (model.has_costs()) model.Aim(LogCostToAimAt(model, history.size()));
    std::vector<Candidate> candidates = Candidates(model, tried, static_cast<uint32_t>(history.size()));
    if (candidates.empty()) {  // all near ones are tried
      std::optional<Point> point = NextSpread(space_, options_.seed, history);
      if (!point.has_value()) return std::nullopt;
      return Suggestion{.point = *std::move(point), .why = "all candidates of the model have been tried"};
    }
    Candidate best = Best(model, std::move(candidates), tried, static_cast<uint32_t>(history.size()));
    return Suggestion{
        .point = std::move(best.point),
        .why = model.has_costs()
                   ? absl::StrCat("most expected improvement at its cost, by a model of ", Counted(measured, "trial"))
                   : absl::StrCat("most expected improvement, by a model of ", Counted(measured, "trial"))};
  }

 private:
  /// Every cost that the space has in turn, evenly over its logarithm, and of some trials the highest: cheap trials say
  /// where it is worth to pay more, and the best there is costs most as a rule.
  double LogCostToAimAt(const Model& model, uint64_t trial) const {
    double low = INFINITY, high = -INFINITY;
    for (uint64_t i = 0; i < kSpread; ++i) {
      const Point point = space_.FromUnit(HaltonPoint(options_.seed, i, space_.dimensions().size()));
      const double log_cost = model.LogCost(*space_.ToUnit(point));
      low = std::min(low, log_cost);
      high = std::max(high, log_cost);
    }
    constexpr double kGolden = 0.6180339887498949;  // multiples of it, without their whole part, are evenly spread
    const double turn = static_cast<double>(trial) * kGolden;
    return low + std::min(1.0, (turn - std::floor(turn)) / (1 - kDear)) * (high - low);
  }

  std::optional<Candidate> Make(const Model& model, const Coordinates& unit, const std::set<std::string>& tried) const {
    Candidate candidate{.point = space_.FromUnit(unit), .text = {}, .at = {}};
    candidate.text = PointText(candidate.point);
    if (tried.contains(candidate.text)) return std::nullopt;
    candidate.at = *space_.ToUnit(candidate.point);  // of the point as it will be, rounded
    candidate.score = model.Score(candidate.at);
    return candidate;
  }

  /// A change of some coordinates; element: what it is keyed by.
  Coordinates Changed(Coordinates at, double deviation, uint32_t trial, uint32_t round, uint64_t element) const {
    const size_t n = at.size();
    const auto draw = [&](uint64_t i) {
      return Uniform(options_.seed, Draw::kNeighbours, trial, round, element * 8 * kMaxDimensions + i);
    };
    const auto always = static_cast<size_t>(draw(0) * static_cast<double>(n));
    const bool all = draw(1) < 0.4;
    for (size_t d = 0; d < n; ++d) {
      if (!all && d != always && draw(2 + d) > 0.3) continue;
      const Dimension& dimension = space_.dimensions()[d];
      if (dimension.scale == Scale::kChoice) {
        if (draw(80 + d) < 0.3) at[d] = draw(160 + d);
        continue;
      }
      const double z = Normal(options_.seed, Draw::kCandidates, trial, round, element * kMaxDimensions + d);
      const double whole = dimension.integer ? 0.6 / (dimension.high - dimension.low + 1) : 0;  // a step at least
      at[d] = std::clamp(at[d] + std::max(deviation, whole) * z, 0.0, 1.0);
    }
    return at;
  }

  std::vector<Candidate> Candidates(const Model& model, const std::set<std::string>& tried, uint32_t trial) const {
    std::vector<Candidate> candidates;
    const auto add = [&](const Coordinates& unit) {
      if (auto candidate = Make(model, unit, tried)) candidates.push_back(*std::move(candidate));
    };
    const std::optional<int64_t> count = space_.Count();
    if (count.has_value() && *count <= kListed) {
      for (int64_t i = 0; i < *count; ++i) add(*space_.ToUnit(space_.At(i)));
      return candidates;
    }
    for (uint64_t i = 0; i < kSpread; ++i) {
      add(HaltonPoint(options_.seed + 1, uint64_t{trial} * kSpread + i, space_.dimensions().size()));
    }
    const std::vector<Coordinates> centres = model.Centres();
    for (uint64_t i = 0; i < kNear; ++i) {
      const double deviation = 0.2 / static_cast<double>(1 << (i / centres.size() % 6));
      add(Changed(centres[i % centres.size()], deviation, trial, 0, i));
    }
    return candidates;
  }

  /// The best after the best few have been improved by changes that become smaller.
  Candidate Best(const Model& model, std::vector<Candidate> candidates, const std::set<std::string>& tried,
                 uint32_t trial) const {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    const std::optional<int64_t> count = space_.Count();
    if (count.has_value() && *count <= kListed) return std::move(candidates.front());
    candidates.resize(std::min(candidates.size(), kClimbed));
    const uint64_t changes = 2 * space_.dimensions().size() + 4;
    for (size_t c = 0; c < candidates.size(); ++c) {
      double deviation = 0.1;
      for (int round = 1; round <= kRounds; ++round, deviation *= 0.6) {
        const Coordinates from = candidates[c].at;
        for (uint64_t i = 0; i < changes; ++i) {
          auto changed =
              Make(model, Changed(from, deviation, trial, static_cast<uint32_t>(round), c * changes + i), tried);
          if (changed.has_value() && changed->score > candidates[c].score) candidates[c] = *std::move(changed);
        }
      }
    }
    return *std::max_element(candidates.begin(), candidates.end(),
                             [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
  }

  SearchSpace space_;
  StrategyOptions options_;
};

}  // namespace

std::unique_ptr<SearchStrategy> MakeBayes(const SearchSpace& space, const StrategyOptions& options) {
  return std::make_unique<Bayes>(space, options);
}

}  // namespace holdfast::search
