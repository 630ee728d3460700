#pragma once
// Where an external tensor lies in the flat vector of a layout, and the transposition on the way.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

/// Elements of a tensor that are converted at a time, in either direction.
inline constexpr int64_t kBlockElements = int64_t{1} << 20;

/// A run of whole rows of one parameter in the flat vector: (rows, cols) row-major from `offset`.
struct TensorSlice {
  int64_t offset = 0, rows = 0, cols = 0;
  int64_t elements() const { return rows * cols; }
};

/// Internal if `tensor` does not fit the layout: its rows lie outside the parameter, or its shape has another size.
absl::StatusOr<TensorSlice> SliceOf(const ParameterLayout& layout, const ExternalTensor& tensor);

/// Internal unless the map holds every row of every parameter exactly once.
absl::Status CheckCoverage(const ParameterLayout& layout, const TensorMap& map);

/// out (cols, rows) = transpose of in (rows, cols), both row-major with the given elements between starts of rows.
void Transpose(const float* in, int64_t in_stride, int64_t rows, int64_t cols, float* out, int64_t out_stride);

}  // namespace holdfast
