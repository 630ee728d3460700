#pragma once
// The arguments of operations that have many, as one object that every instruction set's version takes. They live for
// one call.

#include <cstdint>

#include "kernels/ops.h"

namespace holdfast::kernels {

struct EmbeddingForwardCall {
  Matrix out;
  const int32_t* tokens;
  ConstMatrix token_table, position_table;
  Positions positions;
  float scale;
};

struct EmbeddingBackwardCall {
  Matrix d_token_table, d_position_table;
  const int32_t* tokens;
  ConstMatrix d_out;
  Positions positions;
  float scale;
};

struct NormForwardCall {
  Matrix out, residual_out;
  NormStats stats;
  ConstMatrix residual, branch;
  NormParams params;
};

struct NormBackwardCall {
  Matrix d_input;
  ConstMatrix d_residual, d_out, input;
  NormStats stats;
  NormParams params;
};

struct RopeCall {
  Matrix x;
  const float* cos_sin;
  RotaryHeads heads;
  Positions positions;
  bool inverse;
};

struct CrossEntropyCall {
  float* losses;
  Matrix d_logits;
  ConstMatrix logits;
  const int32_t* targets;
  float grad_scale;
};

}  // namespace holdfast::kernels
