#include "checkpoint/tensor_slices.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kTile = 16;  // a cache line of fp32 either way

int64_t RowsOf(const ParameterSpec& p) { return p.shape.rank() <= 1 ? p.shape.elements() : p.shape.rows(); }
int64_t ColsOf(const ParameterSpec& p) { return p.shape.rank() <= 1 ? 1 : p.shape.cols(); }

}  // namespace

absl::StatusOr<TensorSlice> SliceOf(const ParameterLayout& layout, const ExternalTensor& tensor) {
  const auto refuse = [&](const char* why) {
    return absl::InternalError(absl::StrCat("tensor map: \"", tensor.name, "\" ", why));
  };
  if (tensor.parameter < 0 || static_cast<size_t>(tensor.parameter) >= layout.parameters().size()) {
    return refuse("belongs to no parameter");
  }
  const ParameterSpec& p = layout.parameters()[static_cast<size_t>(tensor.parameter)];
  const int64_t rows = RowsOf(p), cols = ColsOf(p);
  if (tensor.first_row < 0 || tensor.num_rows < 0 || tensor.first_row > rows - tensor.num_rows) {
    return refuse("has rows that its parameter has not");
  }
  const bool fits = tensor.transposed ? tensor.shape == Shape{cols, tensor.num_rows}
                                      : tensor.shape.elements() == tensor.num_rows * cols;
  if (!fits) return refuse("has a shape that does not match its rows");
  return TensorSlice{p.offset + tensor.first_row * cols, tensor.num_rows, cols};
}

absl::Status CheckCoverage(const ParameterLayout& layout, const TensorMap& map) {
  std::vector<TensorSlice> slices;
  for (const ExternalTensor& tensor : map) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, tensor));
    if (slice.elements() > 0) slices.push_back(slice);
  }
  std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const TensorSlice& slice : slices) {
    if (slice.offset != end) break;
    end += slice.elements();
  }
  if (end == layout.elements()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("tensor map: element ", end, " of ", layout.elements(), " of the layout is in no tensor or in two"));
}

void Transpose(const float* in, int64_t in_stride, int64_t rows, int64_t cols, float* out, int64_t out_stride) {
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t r1 = std::min(r0 + kTile, rows), c1 = std::min(c0 + kTile, cols);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) out[c * out_stride + r] = in[r * in_stride + c];
      }
    }
  }
}

}  // namespace holdfast
