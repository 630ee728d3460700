#pragma once
// Cholesky's factor of small symmetric matrices. Eigen's products follow the caches and the fused operations of the
// processor; these sums have one order, so a suggestion has the same bits everywhere.

#include <cstddef>
#include <vector>

namespace holdfast::search {

class Cholesky {
 public:
  /// Adds a row: its products with the rows that are there and, last, with itself. False, and nothing is added, if the
  /// matrix would not be positive definite.
  bool Append(std::vector<double> row);

  size_t size() const { return rows_.size(); }
  double LogDiagonalSum() const;                              // half the logarithm of the determinant
  std::vector<double> Forward(std::vector<double> b) const;   // L^-1 b
  std::vector<double> Backward(std::vector<double> b) const;  // L^-T b
  std::vector<std::vector<double>> Inverse() const;           // of the matrix, both triangles

 private:
  std::vector<std::vector<double>> rows_;  // of L: row i has i + 1 values
};

/// Sum of a[i] * b[i], in four sums of every fourth product.
double Dot(const double* a, const double* b, size_t n);

}  // namespace holdfast::search
