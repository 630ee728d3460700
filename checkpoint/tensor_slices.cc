#include "checkpoint/tensor_slices.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kTile = 16;  // a cache line of fp32 either way

int64_t RowsOf(const ParameterSpec& p) { return p.shape.rank() <= 1 ? p.shape.elements() : p.shape.rows(); }
int64_t ColsOf(const ParameterSpec& p) { return p.shape.rank() <= 1 ? 1 : p.shape.cols(); }

/// Whether the rows are some of the file's tensor, and of one of its matrices where these are transposed.
bool HasRows(const ExternalTensor& tensor, int64_t cols) {
  const int64_t elements = tensor.shape.elements();
  if (tensor.num_rows == 0 || cols == 0) return elements == 0;
  if (tensor.file_row < 0 || tensor.row_step < 1 || elements % cols != 0) return false;
  const int64_t all_rows = elements / cols, last = tensor.file_row + (tensor.num_rows - 1) * tensor.row_step;
  if (last >= all_rows) return false;
  if (!tensor.transposed) return tensor.row_step == 1 || !tensor.scales.empty();  // no other is read or written
  const int64_t width = tensor.shape.cols(), lines = tensor.shape.rows();
  return lines % cols == 0 && tensor.file_row / width == last / width;
}

/// Of all the rows that tensors of one name hold.
struct Held {
  const ExternalTensor* first = nullptr;
  int64_t elements = 0;
};

}  // namespace

FilePlace PlaceOf(const ExternalTensor& tensor, int64_t cols) {
  if (!tensor.transposed) return {.first = tensor.file_row * cols, .row_step = tensor.row_step * cols};
  const int64_t width = tensor.shape.cols();
  const int64_t matrix = tensor.file_row / width;
  return {.first = matrix * width * cols + tensor.file_row % width, .row_step = tensor.row_step, .col_step = width};
}

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
  if (!HasRows(tensor, cols)) return refuse("has a shape that does not match its rows");
  return TensorSlice{p.offset + tensor.first_row * cols, tensor.num_rows, cols};
}

absl::Status CheckCoverage(const ParameterLayout& layout, const TensorMap& map) {
  std::vector<TensorSlice> slices;
  std::map<std::string, Held> held;
  for (const ExternalTensor& tensor : map) {
    ASSIGN_OR_RETURN(const TensorSlice slice, SliceOf(layout, tensor));
    if (slice.elements() > 0) slices.push_back(slice);
    Held& of_name = held.try_emplace(tensor.name, Held{.first = &tensor}).first->second;
    of_name.elements += slice.elements();
    if (tensor.shape == of_name.first->shape && tensor.transposed == of_name.first->transposed) continue;
    return absl::InternalError(absl::StrCat("tensor map: \"", tensor.name, "\" has two shapes"));
  }
  for (const auto& [name, of_name] : held) {
    if (of_name.elements == of_name.first->shape.elements()) continue;
    return absl::InternalError(absl::StrCat("tensor map: \"", name, "\" has a shape of ",
                                            of_name.first->shape.elements(), " elements, its rows have ",
                                            of_name.elements));
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

void CopyMatrix(StridedMatrix<const float> in, int64_t rows, int64_t cols, StridedMatrix<float> out) {
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t r1 = std::min(r0 + kTile, rows), c1 = std::min(c0 + kTile, cols);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) {
          out.data[r * out.row_step + c * out.col_step] = in.data[r * in.row_step + c * in.col_step];
        }
      }
    }
  }
}

}  // namespace holdfast
