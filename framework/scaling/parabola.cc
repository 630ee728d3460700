#include "framework/scaling/parabola.h"

#include <Eigen/Dense>
#include <cmath>
#include <set>

namespace holdfast {

std::optional<Parabola> FitParabola(absl::Span<const double> x, absl::Span<const double> y) {
  const auto rows = static_cast<Eigen::Index>(x.size());
  if (std::set<double>(x.begin(), x.end()).size() < 3) return std::nullopt;
  const double middle = Eigen::Map<const Eigen::VectorXd>(x.data(), rows).mean();
  Eigen::MatrixXd powers(rows, 3);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const double from_middle = x[static_cast<size_t>(i)] - middle;
    powers.row(i) << 1, from_middle, from_middle * from_middle;
  }
  const Eigen::Vector3d c = powers.colPivHouseholderQr().solve(Eigen::Map<const Eigen::VectorXd>(y.data(), rows));
  if (!c.allFinite() || c[2] <= 0) return std::nullopt;
  const double lowest = -c[1] / (2 * c[2]);
  return Parabola{.x_min = middle + lowest, .y_min = c[0] + c[1] * lowest / 2, .curvature = c[2]};
}

double PowerLaw::At(absl::Span<const double> x) const {
  double log_y = log_constant;
  for (size_t k = 0; k < exponents.size(); ++k) log_y += exponents[k] * std::log(x[k]);
  return std::exp(log_y);
}

std::optional<PowerLaw> FitPowerLaw(absl::Span<const std::vector<double>> x, absl::Span<const double> y) {
  if (x.empty()) return std::nullopt;
  const auto rows = static_cast<Eigen::Index>(x.size()), columns = static_cast<Eigen::Index>(x[0].size()) + 1;
  Eigen::MatrixXd logs(rows, columns);
  Eigen::VectorXd log_y(rows);
  for (Eigen::Index i = 0; i < rows; ++i) {
    logs(i, 0) = 1;
    for (Eigen::Index k = 1; k < columns; ++k)
      logs(i, k) = std::log(x[static_cast<size_t>(i)][static_cast<size_t>(k - 1)]);
    log_y[i] = std::log(y[static_cast<size_t>(i)]);
  }
  // Of centred columns, so that what counts as dependent does not go by their size.
  const Eigen::RowVectorXd means = logs.colwise().mean();
  Eigen::MatrixXd centred = logs.rightCols(columns - 1).rowwise() - means.rightCols(columns - 1);
  constexpr double kDependent = 1e-3;
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver;
  solver.setThreshold(kDependent);
  solver.compute(centred);
  if (solver.rank() < columns - 1) return std::nullopt;
  const Eigen::VectorXd slopes = solver.solve((log_y.array() - log_y.mean()).matrix());
  return PowerLaw{.log_constant = log_y.mean() - means.rightCols(columns - 1).dot(slopes),
                  .exponents = {slopes.begin(), slopes.end()}};
}

}  // namespace holdfast
