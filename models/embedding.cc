#include "models/embedding.h"

namespace holdfast {

Embedding::Embedding(ParameterBuilder& builder, const ModelConfig& config) {
  const auto std = static_cast<float>(config.init_std);
  tokens_ = builder.AddMatrix("embedding.tokens.weight", config.vocab_size, config.hidden_size, std,
                              ParameterRole::kEmbedding);
  if (config.position == PositionKind::kLearned) {
    positions_ = builder.AddMatrix("embedding.positions.weight", config.max_sequence_length, config.hidden_size, std,
                                   ParameterRole::kEmbedding);
  }
}

void Embedding::Forward(const Pass& pass, UnitTensors weights, const int32_t* tokens, kernels::Matrix out) const {
  kernels::ConstMatrix positions;
  if (positions_ >= 0) positions = weights[positions_].matrix();
  pass.ops->EmbeddingForward(out, tokens, weights[tokens_].matrix(), positions, pass.positions(),
                             pass.DropoutAt(0, RandomSite::kEmbedding), 1);
}

void Embedding::Backward(const Pass& pass, UnitTensors gradients, const int32_t* tokens,
                         kernels::ConstMatrix d_out) const {
  kernels::Matrix d_tokens, d_positions;
  if (Wanted(gradients[tokens_])) d_tokens = gradients[tokens_].matrix();
  if (positions_ >= 0 && Wanted(gradients[positions_])) {
    pass.ops->Zero(gradients[positions_].data, gradients[positions_].bytes());  // rows beyond T have no gradient
    d_positions = Rows(gradients[positions_], 0, pass.sequence);
  }
  pass.ops->EmbeddingBackward(d_tokens, d_positions, tokens, d_out, pass.positions(),
                              pass.DropoutAt(0, RandomSite::kEmbedding), 1);
}

}  // namespace holdfast
