#pragma once
// How parameters appear in an external file: the only thing that model families (which know foreign names) and file
// formats (which know bytes) share.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace holdfast {

inline constexpr int64_t kMxfp4Values = 32;  // of a row of a matrix in MXFP4, which share a scale

/// Rows of a tensor of an external file, from first_row on. A tensor of more than two dimensions is matrices of which
/// the rows of each follow those of the one before.
struct ExternalRows {
  std::string name;
  int64_t first_row = 0;
  Shape shape;           // of the whole tensor
  int64_t row_step = 1;  // from one of the rows to the next
  bool transposed = false;
  /// Not empty: the tensor holds blocks in MXFP4, and this one their scales (checkpoint/mxfp4.h). `shape` is that of
  /// the values.
  std::string scales = {};
};

/// One tensor of an external file and the rows of the parameter it holds. A fused parameter (query, key and value in
/// one matrix) is several external tensors; rows [first_row, first_row + num_rows) of the parameter are this one.
struct ExternalTensor {
  std::string name;                     // "model.layers.0.self_attn.k_proj.weight"
  int parameter = 0;                    // index in the layout
  int64_t first_row = 0, num_rows = 0;  // a vector parameter of n elements counts as n rows of one
  bool transposed = false;              // rows are columns of the file's matrices, as with GPT-2's Conv1D
  Shape shape;                          // in the file
  int64_t file_row = 0;                 // the first of them in the file's tensor, which may hold other parameters, too
  std::vector<ExternalRows> others = {};  // where a reader looks if there is none of that name, in this order
  std::string duplicate = {};             // a tensor that files may have besides, of the same values; empty = none
  bool fp32 = false;                      // written in fp32, whatever the others are: what decides by small differences
  float subtracted = 0;     // files hold values less this, which is taken off in fp32 before they are rounded
  int64_t row_step = 1;     // from one of the rows to the next in the file's tensor, as from file_row on
  std::string scales = {};  // as in ExternalRows, of tensors that are read
};

using TensorMap = std::vector<ExternalTensor>;

}  // namespace holdfast
