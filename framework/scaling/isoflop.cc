#include "framework/scaling/isoflop.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace holdfast {
namespace {

std::optional<IsoflopCurve> CurveOf(absl::Span<const Observation> runs, std::vector<size_t> members) {
  std::sort(members.begin(), members.end(), [&](size_t a, size_t b) {
    return runs[a].size.active != runs[b].size.active ? runs[a].size.active < runs[b].size.active : a < b;
  });
  std::vector<double> sizes, losses;
  double log_flops = 0, log_product = 0;
  for (const size_t run : members) {
    sizes.push_back(std::log(runs[run].size.active));
    losses.push_back(runs[run].loss);
    log_flops += std::log(runs[run].flops) / static_cast<double>(members.size());
    log_product += std::log(runs[run].size.active * runs[run].size.tokens) / static_cast<double>(members.size());
  }
  const std::optional<Parabola> loss = FitParabola(sizes, losses);
  if (!loss.has_value()) return std::nullopt;
  return IsoflopCurve{.flops = std::exp(log_flops),
                      .runs = std::move(members),
                      .loss = *loss,
                      .product = std::exp(log_product),
                      .lowest_is_inside = loss->x_min >= sizes.front() && loss->x_min <= sizes.back()};
}

}  // namespace

double IsoflopCurve::best_active() const { return std::exp(loss.x_min); }

IsoflopCurves FindIsoflopCurves(absl::Span<const Observation> runs, double tolerance) {
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return runs[a].flops < runs[b].flops; });
  IsoflopCurves found;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && runs[order[end]].flops <= runs[order[begin]].flops * (1 + tolerance)) ++end;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    auto curve = CurveOf(runs, {first, first + static_cast<std::ptrdiff_t>(end - begin)});
    if (curve.has_value()) found.curves.push_back(*std::move(curve));
    begin = end;
  }
  std::vector<std::vector<double>> budgets;
  std::vector<double> best;
  for (const IsoflopCurve& curve : found.curves) {
    if (!curve.lowest_is_inside) continue;
    budgets.push_back({curve.flops});
    best.push_back(curve.best_active());
  }
  if (best.size() >= 2) found.optimum = FitPowerLaw(budgets, best);
  return found;
}

}  // namespace holdfast
