#include "framework/search/cholesky.h"

#include <cmath>
#include <utility>

#include "kernels/portable_math.h"

namespace holdfast::search {

double Dot(const double* a, const double* b, size_t n) {
  double sums[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (size_t k = 0; i < n; ++i, ++k) sums[k] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

bool Cholesky::Append(std::vector<double> row) {
  const size_t n = rows_.size();
  for (size_t j = 0; j < n; ++j) row[j] = (row[j] - Dot(row.data(), rows_[j].data(), j)) / rows_[j][j];
  const double rest = row[n] - Dot(row.data(), row.data(), n);
  if (!(rest > 1e-14 * row[n])) return false;
  row[n] = std::sqrt(rest);
  rows_.push_back(std::move(row));
  return true;
}

double Cholesky::LogDiagonalSum() const {
  double sum = 0;
  for (size_t i = 0; i < rows_.size(); ++i) sum += portable::Log(rows_[i][i]);
  return sum;
}

std::vector<double> Cholesky::Forward(std::vector<double> b) const {
  for (size_t i = 0; i < rows_.size(); ++i) b[i] = (b[i] - Dot(rows_[i].data(), b.data(), i)) / rows_[i][i];
  return b;
}

std::vector<double> Cholesky::Backward(std::vector<double> b) const {
  for (size_t i = rows_.size(); i-- > 0;) {
    b[i] /= rows_[i][i];
    for (size_t j = 0; j < i; ++j) b[j] -= b[i] * rows_[i][j];
  }
  return b;
}

std::vector<std::vector<double>> Cholesky::Inverse() const {
  const size_t n = rows_.size();
  // Row i of columns: column i of L^-1, zeros above the diagonal left out.
  std::vector<std::vector<double>> columns(n);
  for (size_t i = 0; i < n; ++i) {
    std::vector<double>& column = columns[i];
    for (size_t j = i; j < n; ++j) {
      column.push_back(((j == i ? 1.0 : 0.0) - Dot(rows_[j].data() + i, column.data(), j - i)) / rows_[j][j]);
    }
  }
  std::vector<std::vector<double>> inverse(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      inverse[i][j] = inverse[j][i] = Dot(columns[i].data(), columns[j].data() + (i - j), n - i);
    }
  }
  return inverse;
}

}  // namespace holdfast::search
