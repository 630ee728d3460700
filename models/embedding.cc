#include "models/embedding.h"

#include <bit>
#include <cmath>

namespace holdfast {

Embedding::Embedding(ParameterBuilder& builder, const ModelConfig& config)
    : scale_(config.scale_embeddings ? std::sqrt(static_cast<double>(config.hidden_size)) : 1) {
  const auto std = static_cast<float>(config.init_std);
  tokens_ = builder.AddMatrix("embedding.tokens.weight", config.vocab_size, config.hidden_size, std,
                              ParameterRole::kEmbedding);
  if (config.position == PositionKind::kLearned) {
    positions_ = builder.AddMatrix("embedding.positions.weight", config.max_sequence_length, config.hidden_size, std,
                                   ParameterRole::kEmbedding);
  }
}

// Rounded to bf16 in a pass in bf16, as transformers has it, and as Gemma was trained: its 25.3 is 25.25 then.
float Embedding::Scale(DType dtype) const {
  const auto scale = static_cast<float>(scale_);
  if (dtype == DType::kF32) return scale;
  const auto bits = std::bit_cast<uint32_t>(scale);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

void Embedding::Forward(const Pass& pass, UnitTensors weights, const int32_t* tokens, kernels::Matrix out) const {
  kernels::ConstMatrix positions;
  if (positions_ >= 0) positions = weights[positions_].matrix();
  pass.ops->EmbeddingForward(out, tokens, weights[tokens_].matrix(), positions, pass.positions(),
                             pass.DropoutAt(0, RandomSite::kEmbedding), Scale(pass.dtype));
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
                              pass.DropoutAt(0, RandomSite::kEmbedding), Scale(pass.dtype));
}

}  // namespace holdfast
