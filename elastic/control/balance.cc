#include "elastic/control/balance.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "elastic/control/median.h"

namespace holdfast {
namespace {

std::vector<double> WithMedian(std::vector<double> seconds) {
  std::vector<double> known;
  for (const double s : seconds) {
    if (s > 0) known.push_back(s);
  }
  if (known.empty()) return std::vector<double>(seconds.size(), 1.0);
  const double median = LowerMedian(std::move(known));
  for (double& s : seconds) {
    if (!(s > 0)) s = median;
  }
  return seconds;
}

double StepSeconds(const std::vector<int64_t>& split, const std::vector<double>& seconds) {
  double longest = 0;
  for (size_t i = 0; i < split.size(); ++i) longest = std::max(longest, static_cast<double>(split[i]) * seconds[i]);
  return longest;
}

}  // namespace

std::vector<int64_t> SplitBySpeed(int64_t microbatches, const std::vector<double>& seconds) {
  const std::vector<double> known = WithMedian(seconds);
  using DoneAt = std::pair<double, size_t>;  // with one microbatch more; rank
  std::priority_queue<DoneAt, std::vector<DoneAt>, std::greater<>> ranks;
  for (size_t rank = 0; rank < known.size(); ++rank) ranks.emplace(known[rank], rank);
  std::vector<int64_t> split(known.size(), 0);
  for (int64_t i = 0; i < microbatches; ++i) {
    const size_t rank = ranks.top().second;
    ranks.pop();
    ++split[rank];
    ranks.emplace(static_cast<double>(split[rank] + 1) * known[rank], rank);
  }
  return split;
}

std::vector<int64_t> Rebalance(const std::vector<int64_t>& current, const std::vector<double>& seconds) {
  constexpr double kWorthIt = 0.95;
  const std::vector<double> known = WithMedian(seconds);
  std::vector<int64_t> better = SplitBySpeed(std::accumulate(current.begin(), current.end(), int64_t{0}), known);
  return StepSeconds(better, known) < kWorthIt * StepSeconds(current, known) ? better : current;
}

}  // namespace holdfast
