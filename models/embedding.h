#pragma once
// Token table and, for learned positions, position table: the first unit.

#include "framework/config/config.h"
#include "models/parameter_builder.h"
#include "models/pass.h"

namespace holdfast {

class Embedding {
 public:
  Embedding(ParameterBuilder& builder, const ModelConfig& config);

  /// out (R, C) = dropout(scale * token_table[tokens[r]] + position_table[r mod T]).
  void Forward(const Pass& pass, UnitTensors weights, const int32_t* tokens, kernels::Matrix out) const;

  /// Adds to the token table's gradient, overwrites the position table's.
  void Backward(const Pass& pass, UnitTensors gradients, const int32_t* tokens, kernels::ConstMatrix d_out) const;

  /// The table (V, C) among the unit's tensors: also the output projection of a tied head.
  const Tensor& TokenTable(UnitTensors tensors) const { return tensors[tokens_]; }

 private:
  /// By which embeddings of tokens are multiplied, in the precision of the pass.
  float Scale(DType dtype) const;

  double scale_;
  int tokens_, positions_ = -1;
};

}  // namespace holdfast
