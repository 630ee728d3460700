#pragma once
// A Gaussian process over the unit cube: Matern 5/2 with a length per dimension (Rasmussen & Williams 2006, chapters 2
// and 5), its values the most probable ones under log-normal priors, found by a fixed number of steps.

#include <cmath>
#include <cstddef>
#include <vector>

#include "framework/search/cholesky.h"

namespace holdfast::search {

using Coordinates = std::vector<double>;

struct Prediction {
  double mean = 0;
  double deviation = 0;  // of the function: without the noise of a measurement
};

class GaussianProcess {
 public:
  /// Of values with mean 0 and a deviation of about 1. different: dimensions of choices, between which nothing lies:
  /// two coordinates are equal or 1 apart.
  GaussianProcess(std::vector<Coordinates> inputs, std::vector<double> values, std::vector<bool> different);

  Prediction At(const Coordinates& at) const;
  /// Of a value that is measured, about what the process is there.
  double noise_deviation() const { return std::sqrt(noise_); }

  /// As if the function had been measured there, with what is expected of it: it is certain from then on, and nothing
  /// else is different.
  void Believe(const Coordinates& at);

 private:
  double Distance2(const Coordinates& a, const Coordinates& b, size_t dimension) const;
  double Kernel(const Coordinates& a, const Coordinates& b) const;
  void Fit();
  double Objective(const std::vector<double>& logs, const std::vector<size_t>& rows, std::vector<double>* slopes) const;
  void Factor();

  std::vector<Coordinates> inputs_;
  std::vector<double> values_;
  std::vector<bool> different_;
  std::vector<double> inverse_lengths2_;
  double amplitude_ = 1, noise_ = 1e-4;  // variances
  Cholesky factor_;
  std::vector<double> weights_;  // K^-1 y
};

}  // namespace holdfast::search
