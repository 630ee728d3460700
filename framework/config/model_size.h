#pragma once
// How many parameters a model has, from its sizes alone: a layout of them takes memory and time in proportion, so
// configs that are not to be trusted are counted before one is made. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

/// About twice the largest model that anybody is known to have trained. A layout of so many parameters takes some GB;
/// of what a slip of a key asks for, it would take all memory.
inline constexpr int64_t kMaxParameters = 4'000'000'000'000;

/// All matrices of one kind.
struct MatrixKind {
  std::string name;  // "the MLPs"
  int64_t elements = 0;
  struct Size {
    const char* key;  // of the section `model`
    int64_t value;
  };
  std::vector<Size> sizes;  // that the number follows from, the likeliest slip first
};

/// Of a resolved model. Numbers beyond int64_t are INT64_MAX, here and below.
std::vector<MatrixKind> MatrixKindsOf(const ModelConfig& model);

/// Elements of all matrices of a resolved model: all of its parameters but vectors, which are few.
int64_t MatrixElements(const ModelConfig& model);

}  // namespace holdfast
