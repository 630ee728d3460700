#pragma once
// How parameters appear in an external file: the only thing that model families (which know foreign names) and file
// formats (which know bytes) share.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace holdfast {

/// Rows of a tensor of an external file, from first_row on.
struct ExternalRows {
  std::string name;
  int64_t first_row = 0;
  Shape shape;  // of the whole tensor
};

/// One tensor of an external file and the rows of the parameter it holds. A fused parameter (query, key and value in
/// one matrix) is several external tensors; rows [first_row, first_row + num_rows) of the parameter are this one.
struct ExternalTensor {
  std::string name;                     // "model.layers.0.self_attn.k_proj.weight"
  int parameter = 0;                    // index in the layout
  int64_t first_row = 0, num_rows = 0;  // a vector parameter of n elements counts as n rows of one
  bool transposed = false;              // the file holds (in, out), as GPT-2's Conv1D does
  Shape shape;                          // in the file
  int64_t file_row = 0;                 // the first of them in the file's tensor, which may hold other parameters, too
  std::vector<ExternalRows> others = {};  // where a reader looks if there is none of that name, in this order
  std::string duplicate = {};             // a tensor that files may have besides, of the same values; empty = none
  bool fp32 = false;                      // written in fp32, whatever the others are: what decides by small differences
  float subtracted = 0;  // files hold values less this, which is taken off in fp32 before they are rounded
};

using TensorMap = std::vector<ExternalTensor>;

}  // namespace holdfast
