#pragma once
// Our names of parameters and those of the tensors of a file, as a table.
//
//   {"blocks.#.attention.qkv", {{"layers.#.self_attn.q_proj", 64}, {"layers.#.self_attn.k_proj", 32}, ...}}
//
// says that "blocks.3.attention.qkv.weight" holds "layers.3.self_attn.q_proj.weight" in its first 64 rows, and so on,
// and its ".bias" likewise. Each # of theirs is the number that the # of ours at the same place in order stands for.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

/// One module of ours and the modules of theirs that its rows are made of, in order.
struct TensorRule {
  struct Part {
    std::string name;
    int64_t rows = 0;        // 0 = all
    std::string other = {};  // another name that files may have; empty = none
  };
  std::string ours;
  std::vector<Part> theirs;
  bool transposed = false;  // matrices are (in, out)
  bool prefixed = true;
  /// A tensor (its whole name) that files may have instead: of the modules whose last # is 0 .. stack - 1 one after the
  /// other, with all their rows. Empty = none.
  std::string stacked = {};
  int64_t stack = 0;
  /// Theirs are such a tensor itself, of transposed matrices, in which the rows of the parts take turns: of weights
  /// (stack, in, out), of biases (stack, out) under its name and "_bias". Files may have the weights in MXFP4 instead
  /// ("_blocks", "_scales"), of matrices that are not transposed.
  bool joined = false;
  /// What theirs have in place of ".weight" or the like. Empty = the same as ours.
  std::string kind = {};
  float subtracted = 0;  // ExternalTensor::subtracted
};

struct TensorNames {
  std::string prefix;  // of prefixed tensors; files saved from the model without its head lack it everywhere
  std::vector<TensorRule> rules;
};

/// One rule must match each parameter.
TensorMap MakeTensorMap(const TensorNames& names, const ParameterLayout& layout);

}  // namespace holdfast
