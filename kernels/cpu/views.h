#pragma once
// Small helpers that every CPU kernel uses: typed rows of a view, a switch on the element type, and how work is cut.

#include <algorithm>
#include <cstdint>

#include "kernels/types.h"

namespace holdfast::kernels {

template <typename T>
T* RowOf(const Matrix& m, int64_t r) {
  return static_cast<T*>(m.data) + r * m.stride;
}

template <typename T>
const T* RowOf(const ConstMatrix& m, int64_t r) {
  return static_cast<const T*>(m.data) + r * m.stride;
}

/// Calls body with a value of the C++ type that stores `dtype`: float, or uint16_t for bf16.
template <typename Body>
void WithType(DType dtype, Body&& body) {
  if (dtype == DType::kF32) {
    body(float{});
  } else {
    body(uint16_t{});
  }
}

/// [begin, end) of one task's rows or elements.
struct Range {
  int64_t begin, end;
};

/// Work cut into equal pieces by its shape alone, so that neither the pieces nor their sums depend on the threads.
struct Pieces {
  int64_t total, size;

  int64_t count() const { return (total + size - 1) / size; }
  Range piece(int64_t i) const { return {i * size, std::min(total, (i + 1) * size)}; }
};

/// Rows in pieces of about 16 Ki elements: tens of microseconds each, against less than one to hand out a task.
inline Pieces PiecesOfRows(int64_t rows, int64_t cols) {
  return {rows, std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(cols, 1))};
}

/// Flat vectors in pieces of 64 Ki elements.
inline Pieces PiecesOfVector(int64_t n) { return {n, int64_t{1} << 16}; }

/// Rows to be summed over: at most 64 blocks, so that the partial sums stay small against the input.
inline Pieces PiecesToSum(int64_t rows) { return {rows, std::max<int64_t>(16, (rows + 63) / 64)}; }

}  // namespace holdfast::kernels
