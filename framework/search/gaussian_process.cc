#include "framework/search/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/portable_math.h"

namespace holdfast::search {
namespace {

constexpr double kSqrt5 = 2.23606797749979;
constexpr size_t kFitted = 120;  // values of the kernel change little with more
constexpr int kSteps = 40;

struct Prior {
  double mean, deviation;  // of the logarithm
};
// The same in any number of dimensions: with lengths that grow with its root (Hvarfner et al. 2024, arXiv 2402.02229) a
// search of six dimensions took for known what it was not, and one in six stayed where it had begun.
constexpr Prior kLengthPrior = {-0.35, 1.0};
constexpr Prior kAmplitudePrior = {0.0, 1.0};
constexpr Prior kNoisePrior = {-8.0, 3.0};
constexpr double kLowest = -16, kHighest = 6;  // of all logarithms

/// Of a vector of logarithms to minimise: quasi-Newton steps (BFGS), each halved until it is lower.
template <typename Function>
std::vector<double> Lowest(std::vector<double> at, const Function& function) {
  const size_t n = at.size();
  std::vector<double> slopes, next_slopes;
  double value = function(at, &slopes);
  std::vector<std::vector<double>> inverse(n, std::vector<double>(n, 0.0));
  for (size_t i = 0; i < n; ++i) inverse[i][i] = 0.1;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> move(n);
    for (size_t i = 0; i < n; ++i) move[i] = -Dot(inverse[i].data(), slopes.data(), n);
    const double longest = std::abs(
        *std::max_element(move.begin(), move.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
    if (longest < 1e-4) break;
    double scale = std::min(1.0, 2.0 / longest);
    const double descent = Dot(move.data(), slopes.data(), n);
    std::vector<double> next(n);
    double next_value = std::numeric_limits<double>::infinity();
    for (int halving = 0; halving < 8; ++halving, scale *= 0.4) {
      for (size_t i = 0; i < n; ++i) next[i] = std::clamp(at[i] + scale * move[i], kLowest, kHighest);
      next_value = function(next, &next_slopes);
      if (next_value <= value + 1e-4 * scale * descent) break;
    }
    if (!(next_value < value)) break;
    std::vector<double> s(n), y(n), hy(n);
    for (size_t i = 0; i < n; ++i) s[i] = next[i] - at[i], y[i] = next_slopes[i] - slopes[i];
    const double sy = Dot(s.data(), y.data(), n);
    if (sy > 1e-10) {
      for (size_t i = 0; i < n; ++i) hy[i] = Dot(inverse[i].data(), y.data(), n);
      const double yhy = Dot(y.data(), hy.data(), n);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          inverse[i][j] += (1 + yhy / sy) * s[i] * s[j] / sy - (hy[i] * s[j] + s[i] * hy[j]) / sy;
        }
      }
    }
    const double gain = value - next_value;
    at = std::move(next), slopes = next_slopes, value = next_value;
    if (gain < 1e-6) break;
  }
  return at;
}

double Matern(double r2) {
  const double r = kSqrt5 * std::sqrt(r2);
  return (1 + r + r * r / 3) * portable::Exp(-r);
}

}  // namespace

GaussianProcess::GaussianProcess(std::vector<Coordinates> inputs, std::vector<double> values,
                                 std::vector<bool> different)
    : inputs_(std::move(inputs)), values_(std::move(values)), different_(std::move(different)) {
  Fit();
  Factor();
}

double GaussianProcess::Distance2(const Coordinates& a, const Coordinates& b, size_t dimension) const {
  const double apart = a[dimension] - b[dimension];
  if (different_[dimension]) return apart == 0 ? 0.0 : 1.0;
  return apart * apart;
}

double GaussianProcess::Kernel(const Coordinates& a, const Coordinates& b) const {
  double r2 = 0;
  for (size_t d = 0; d < different_.size(); ++d) r2 += Distance2(a, b, d) * inverse_lengths2_[d];
  return amplitude_ * Matern(r2);
}

/// Minus the logarithm of likelihood times priors, of the values in `rows`, with its slopes. logs: lengths, amplitude,
/// noise.
double GaussianProcess::Objective(const std::vector<double>& logs, const std::vector<size_t>& rows,
                                  std::vector<double>* slopes) const {
  const size_t n = rows.size(), dimensions = different_.size();
  std::vector<double> scales;
  for (size_t d = 0; d < dimensions; ++d) scales.push_back(portable::Exp(-2 * logs[d]));
  const double amplitude = portable::Exp(logs[dimensions]), noise = portable::Exp(logs[dimensions + 1]);
  slopes->assign(logs.size(), 0.0);
  Cholesky factor;
  std::vector<std::vector<double>> shape(n);  // dk / d(r^2), times -2: what slopes by lengths have in common
  std::vector<std::vector<double>> kernel(n);
  std::vector<double> y(n);
  for (size_t i = 0; i < n; ++i) {
    y[i] = values_[rows[i]];
    std::vector<double> row;
    for (size_t j = 0; j <= i; ++j) {
      double r2 = 0;
      for (size_t d = 0; d < dimensions; ++d) r2 += Distance2(inputs_[rows[i]], inputs_[rows[j]], d) * scales[d];
      const double r = kSqrt5 * std::sqrt(r2), decay = amplitude * portable::Exp(-r);
      row.push_back((1 + r + r * r / 3) * decay);
      shape[i].push_back((1 + r) * decay * (5.0 / 3));
    }
    kernel[i] = row;
    row[i] += noise + 1e-9 * amplitude;
    if (!factor.Append(std::move(row))) return std::numeric_limits<double>::infinity();
  }
  const std::vector<double> z = factor.Forward(y);
  const std::vector<double> alpha = factor.Backward(z);
  double objective = 0.5 * Dot(z.data(), z.data(), n) + factor.LogDiagonalSum();
  const std::vector<std::vector<double>> inverse = factor.Inverse();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double twice = i == j ? 1.0 : 2.0;
      const double q = -0.5 * twice * (alpha[i] * alpha[j] - inverse[i][j]);
      (*slopes)[dimensions] += q * kernel[i][j];
      if (i == j) (*slopes)[dimensions + 1] += q * noise;
      for (size_t d = 0; d < dimensions; ++d) {
        (*slopes)[d] += q * shape[i][j] * Distance2(inputs_[rows[i]], inputs_[rows[j]], d) * scales[d];
      }
    }
  }
  for (size_t k = 0; k < logs.size(); ++k) {
    const Prior prior = k < dimensions ? kLengthPrior : (k == dimensions ? kAmplitudePrior : kNoisePrior);
    const double off = (logs[k] - prior.mean) / prior.deviation;
    objective += 0.5 * off * off;
    (*slopes)[k] += off / prior.deviation;
  }
  return objective;
}

void GaussianProcess::Fit() {
  const size_t dimensions = different_.size();
  std::vector<size_t> rows(inputs_.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  if (rows.size() > kFitted) {  // the lowest half, and of the others every so many
    std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return values_[a] < values_[b]; });
    std::vector<size_t> others(rows.begin() + kFitted / 2, rows.end());
    std::sort(others.begin(), others.end());
    rows.resize(kFitted / 2);
    for (size_t i = 0; i < kFitted / 2; ++i) rows.push_back(others[i * others.size() / (kFitted / 2)]);
    std::sort(rows.begin(), rows.end());
  }
  std::vector<double> best;
  double lowest = std::numeric_limits<double>::infinity();
  for (const double noise : {-9.0, -2.0}) {
    std::vector<double> start(dimensions, kLengthPrior.mean);
    start.push_back(0), start.push_back(noise);
    const auto function = [&](const std::vector<double>& logs, std::vector<double>* slopes) {
      return Objective(logs, rows, slopes);
    };
    std::vector<double> found = Lowest(std::move(start), function);
    std::vector<double> slopes;
    const double value = function(found, &slopes);
    if (best.empty() || value < lowest) best = std::move(found), lowest = value;
  }
  for (size_t d = 0; d < dimensions; ++d) inverse_lengths2_.push_back(portable::Exp(-2 * best[d]));
  amplitude_ = portable::Exp(best[dimensions]);
  noise_ = portable::Exp(best[dimensions + 1]);
}

void GaussianProcess::Factor() {
  // More noise until the matrix can be factored: points that are nearly the same.
  for (bool done = false; !done; noise_ = done ? noise_ : noise_ * 10) {
    factor_ = Cholesky();
    done = true;
    for (size_t i = 0; i < inputs_.size() && done; ++i) {
      std::vector<double> row;
      for (size_t j = 0; j <= i; ++j) row.push_back(Kernel(inputs_[i], inputs_[j]));
      row[i] += noise_ + 1e-9 * amplitude_;
      done = factor_.Append(std::move(row));
    }
  }
  weights_ = factor_.Backward(factor_.Forward(values_));
}

Prediction GaussianProcess::At(const Coordinates& at) const {
  std::vector<double> kernel;
  kernel.reserve(inputs_.size());
  for (const Coordinates& input : inputs_) kernel.push_back(Kernel(at, input));
  Prediction prediction{.mean = Dot(kernel.data(), weights_.data(), kernel.size())};
  const std::vector<double> known = factor_.Forward(std::move(kernel));
  const double variance = amplitude_ - Dot(known.data(), known.data(), known.size());
  prediction.deviation = std::sqrt(std::max(variance, 1e-12 * amplitude_));
  return prediction;
}

void GaussianProcess::Believe(const Coordinates& at) {
  const double mean = At(at).mean;
  std::vector<double> row;
  for (const Coordinates& input : inputs_) row.push_back(Kernel(at, input));
  row.push_back(amplitude_ + 1e-6 * amplitude_);
  if (!factor_.Append(std::move(row))) return;  // it is known to all digits
  inputs_.push_back(at);
  values_.push_back(mean);
  weights_ = factor_.Backward(factor_.Forward(values_));
}

}  // namespace holdfast::search
