#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "framework/scaling/minimise.h"

namespace holdfast {
namespace {

constexpr size_t kMaxStarts = 6;

using Normal = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, kMaxTerms, kMaxTerms>;
using Coefficients = Eigen::Matrix<double, Eigen::Dynamic, 1, 0, kMaxTerms, 1>;

struct Projection {
  Coefficients coefficients;  // none negative
  double squares = INFINITY;
};

/// min over c >= 0 of c' G c - 2 h' c: with at most three coefficients, the best of all sets of positive ones.
Projection NonNegative(const Normal& g, const Coefficients& h) {
  const auto terms = static_cast<int>(h.size());
  Projection best;
  for (int set = 1; set < (1 << terms); ++set) {
    std::vector<int> members;
    for (int k = 0; k < terms; ++k) {
      if ((set >> k & 1) != 0) members.push_back(k);
    }
    const Normal part = g(members, members);
    const Coefficients target = h(members);
    const Coefficients solution = part.ldlt().solve(target);
    if (!solution.allFinite() || solution.minCoeff() < 0) continue;
    const double squares = -target.dot(solution);
    if (squares >= best.squares) continue;
    best.squares = squares;
    best.coefficients = Coefficients::Zero(terms);
    for (size_t i = 0; i < members.size(); ++i) best.coefficients[members[i]] = solution[static_cast<int>(i)];
  }
  return best;
}

/// The coefficients that fit best with these exponents, by the squares of p (S / S(run) - 1), which is the error of
/// log L while it is small: S = L^(1/p) is linear in them.
Projection Project(const LawShape& shape, const std::vector<double>& exponents, const CentredRuns& runs) {
  const auto exponent = [&](int index) {
    return index == kNoFactor ? 0 : (index == kPowerOne ? 1 : exponents[static_cast<size_t>(index)]);
  };
  const double power = shape.outer == kNoFactor ? 1 : exponent(shape.outer);
  const int terms = shape.coefficients();
  Normal g = Normal::Zero(terms, terms);
  Coefficients h = Coefficients::Zero(terms), row(terms);
  for (size_t i = 0; i < runs.size(); ++i) {
    const LogSize& size = runs.log_size(i);
    for (int k = 0; k < terms; ++k) {
      const LawTerm& term = shape.terms[static_cast<size_t>(k)];
      row[k] = power * std::exp(-exponent(term.active) * size.active - exponent(term.ratio) * size.ratio -
                                exponent(term.tokens) * size.tokens - runs.log_loss(i) / power);
    }
    g += row * row.transpose();
    h += power * row;
  }
  Projection projection = NonNegative(g, h);
  projection.squares += power * power * static_cast<double>(runs.size());
  return projection;
}

/// A grid of `per_axis` exponents on each of `axes` axes, in equal ratios.
class Grid {
 public:
  Grid(int axes, int per_axis) : axes_(axes), per_axis_(per_axis) {
    for (int i = 0; i < axes; ++i) points_ *= per_axis;
  }
  int points() const { return points_; }
  std::vector<double> Exponents(int point) const {
    constexpr double kLow = 0.02, kHigh = 2.5;
    std::vector<double> exponents;
    for (int axis = 0, rest = point; axis < axes_; ++axis, rest /= per_axis_) {
      exponents.push_back(kLow * std::pow(kHigh / kLow, static_cast<double>(rest % per_axis_) / (per_axis_ - 1)));
    }
    return exponents;
  }
  std::vector<int> Neighbours(int point) const {
    std::vector<int> neighbours;
    for (int axis = 0, stride = 1; axis < axes_; ++axis, stride *= per_axis_) {
      const int at = point / stride % per_axis_;
      if (at > 0) neighbours.push_back(point - stride);
      if (at < per_axis_ - 1) neighbours.push_back(point + stride);
    }
    return neighbours;
  }

 private:
  int axes_, per_axis_, points_ = 1;
};

}  // namespace

std::vector<Law> StartingLaws(LawForm form, const CentredRuns& runs) {
  const LawShape& shape = ShapeOf(form);
  const Grid grid(shape.exponents, shape.exponents == 2 ? 24 : 12);
  std::vector<Projection> projections;
  for (int point = 0; point < grid.points(); ++point) {
    projections.push_back(Project(shape, grid.Exponents(point), runs));
  }
  const auto squares = [&](int point) { return projections[static_cast<size_t>(point)].squares; };
  std::vector<int> minima;
  for (int point = 0; point < grid.points(); ++point) {
    const std::vector<int> neighbours = grid.Neighbours(point);
    const bool lowest = std::all_of(neighbours.begin(), neighbours.end(),
                                    [&](int neighbour) { return squares(neighbour) >= squares(point); });
    if (lowest && std::isfinite(squares(point))) minima.push_back(point);
  }
  std::stable_sort(minima.begin(), minima.end(), [&](int a, int b) { return squares(a) < squares(b); });
  minima.resize(std::min(minima.size(), kMaxStarts));

  std::vector<Law> laws;
  for (const int point : minima) {
    Law law{.form = form, .log_coefficients = {}, .exponents = grid.Exponents(point)};
    constexpr double kSmall = 1e-4;  // in the place of 0, of which no step leads away
    for (const double c : projections[static_cast<size_t>(point)].coefficients) {
      law.log_coefficients.push_back(std::log(std::max(c, kSmall)));
    }
    laws.push_back(std::move(law));
  }
  return laws;
}

}  // namespace holdfast
