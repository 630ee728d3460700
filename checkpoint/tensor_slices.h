#pragma once
// Where an external tensor lies in the flat vector of a layout and in a file, and the transposition on the way.

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

/// Where the elements of a slice lie in the tensor of a file: (r, c) at first + r * row_step + c * col_step.
struct FilePlace {
  int64_t first = 0, row_step = 0, col_step = 1;
};

/// `cols`: of the tensor's slice.
FilePlace PlaceOf(const ExternalTensor& tensor, int64_t cols);

/// Internal if `tensor` does not fit the layout: its rows lie outside the parameter, or not in one of the matrices that
/// the file's tensor is made of.
absl::StatusOr<TensorSlice> SliceOf(const ParameterLayout& layout, const ExternalTensor& tensor);

/// Internal unless the map holds every row of every parameter exactly once, and of each tensor of a file all elements.
absl::Status CheckCoverage(const ParameterLayout& layout, const TensorMap& map);

/// A matrix in memory: (r, c) at data[r * row_step + c * col_step].
template <typename T>
struct StridedMatrix {
  T* data = nullptr;
  int64_t row_step = 0, col_step = 1;
};

/// out = in, both (rows, cols); quick also where one lies by rows and the other by columns.
void CopyMatrix(StridedMatrix<const float> in, int64_t rows, int64_t cols, StridedMatrix<float> out);

}  // namespace holdfast
