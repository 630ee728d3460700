#include "models/attention.h"

#include <cmath>

#include "kernels/portable_math.h"

namespace holdfast {

Attention::Attention(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
                     const float* rope)
    : num_heads_(config.num_heads),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      layer_(layer),
      rope_(rope),
      qkv_(builder, name + ".qkv",
           {.in = config.hidden_size,
            .out = qkv_width(),
            .bias = config.bias,
            .init_std = static_cast<float>(config.init_std)}),
      out_(builder, name + ".out",
           {.in = query_width(), .out = config.hidden_size, .bias = config.bias, .init_std = ResidualInitStd(config)}) {
}

AttentionActivations Attention::Allocate(const Pass& pass) const {
  AttentionActivations activations;
  activations.qkv = pass.Activation(qkv_width());
  activations.lse = pass.arena->Allocate(DType::kF32, {pass.batch, num_heads_, pass.sequence});
  activations.out = pass.Activation(query_width());
  return activations;
}

kernels::AttentionShape Attention::ShapeOf(const Pass& pass) const {
  return {.batch = pass.batch,
          .sequence = pass.sequence,
          .num_heads = num_heads_,
          .num_kv_heads = num_kv_heads_,
          .head_dim = head_dim_,
          .dropout = pass.DropoutAt(layer_, DropoutSite::kAttention)};
}

void Attention::Rotate(const Pass& pass, kernels::Matrix qkv, bool inverse) const {
  if (rope_ == nullptr) return;
  pass.ops->Rope(qkv, rope_, num_heads_ + num_kv_heads_, head_dim_, pass.sequence, inverse);
}

void Attention::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                        const AttentionActivations& activations, kernels::Matrix y) const {
  const kernels::Matrix qkv = activations.qkv.matrix();
  qkv_.Forward(pass, weights, x, qkv);
  Rotate(pass, qkv, false);
  pass.ops->AttentionForward(activations.out.matrix(), activations.lse.f32(), qkv, ShapeOf(pass));
  out_.Forward(pass, weights, activations.out.matrix(), y);
}

void Attention::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                         const AttentionActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
  ArenaScope scope(*pass.arena);
  const kernels::Matrix d_out = pass.Activation(query_width()).matrix();
  const kernels::Matrix d_qkv = pass.Activation(qkv_width()).matrix();
  out_.Backward(pass, weights, gradients, activations.out.matrix(), d_y, d_out);
  pass.ops->AttentionBackward(d_qkv, d_out, activations.out.matrix(), activations.lse.f32(), activations.qkv.matrix(),
                              ShapeOf(pass));
  Rotate(pass, d_qkv, true);
  qkv_.Backward(pass, weights, gradients, x, d_qkv, d_x);
}

std::vector<float> RopeTable(int64_t length, int64_t head_dim, double theta) {
  const int64_t half = head_dim / 2;
  std::vector<float> table(static_cast<size_t>(length * head_dim));
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    frequencies.push_back(portable::Pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  for (int64_t position = 0; position < length; ++position) {
    float* row = &table[static_cast<size_t>(position * head_dim)];
    for (int64_t i = 0; i < half; ++i) {
      const auto [sine, cosine] = portable::SinCos(static_cast<double>(position) * frequencies[static_cast<size_t>(i)]);
      row[i] = static_cast<float>(cosine);
      row[half + i] = static_cast<float>(sine);
    }
  }
  return table;
}

float ResidualInitStd(const ModelConfig& config) {
  return static_cast<float>(config.init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers)));
}

}  // namespace holdfast
