#include "models/attention.h"

#include <cmath>

#include "models/language_model.h"

namespace holdfast {

namespace {

/// The adapters of a projection to Q, K and V columns; K and V have `kv` each.
std::vector<Adapter::Segment> AdaptedQkv(const LoraOptions& lora, int64_t q, int64_t kv) {
  if (lora.rank == 0) return {};
  if (lora.one_qkv)
    return lora.query ? std::vector<Adapter::Segment>{{0, q + 2 * kv}} : std::vector<Adapter::Segment>();
  std::vector<Adapter::Segment> segments;
  if (lora.query) segments.push_back({0, q});
  if (lora.key) segments.push_back({q, kv});
  if (lora.value) segments.push_back({q + kv, kv});
  return segments;
}

}  // namespace

Attention::Attention(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
                     const float* rope)
    : num_heads_(config.num_heads),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      turned_dim_(config.TurnedDim()),
      window_(config.WindowOf(layer)),
      layer_(layer),
      limit_(static_cast<float>(config.clip_qkv)),
      rope_(rope),
      qkv_(builder, name + ".qkv",
           {.in = config.hidden_size,
            .out = qkv_width(),
            .fused = {query_width(), key_width(), key_width()},
            .bias = config.HasQkvBias(),
            .init_std = static_cast<float>(config.init_std),
            .adapted = AdaptedQkv(builder.lora(), query_width(), key_width())}),
      q_norm_(HeadNorm::If(config.qk_norm, builder, name + ".q_norm", num_heads_, config, ParameterRole::kQueryNorm)),
      k_norm_(HeadNorm::If(config.qk_norm, builder, name + ".k_norm", num_kv_heads_, config, ParameterRole::kVector)),
      sinks_(config.attention_sinks
                 ? builder.AddVector(name + ".sinks", num_heads_, InitKind::kZeros, ParameterRole::kVector)
                 : -1),
      out_(builder, name + ".out",
           {.in = query_width(),
            .out = config.hidden_size,
            .bias = config.HasAttentionOutBias(),
            .init_std = ResidualInitStd(config),
            .role = ParameterRole::kBranchOutput,
            .adapted = AdaptedIf(builder.lora().output, builder.lora(), config.hidden_size)}) {}

AttentionActivations Attention::Allocate(const Pass& pass) const {
  AttentionActivations activations;
  if (q_norm_.has_value()) {
    activations.qk = pass.Activation(query_width() + key_width());
    activations.q_norm = q_norm_->Allocate(pass);
    activations.k_norm = k_norm_->Allocate(pass);
  }
  if (limit_ > 0) activations.unclipped = pass.Activation(qkv_width());
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
          .dropout = pass.DropoutAt(layer_, RandomSite::kAttention),
          .window = window_,
          .documents = pass.documents};
}

void Attention::Rotate(const Pass& pass, kernels::Matrix qkv, bool inverse) const {
  if (rope_ == nullptr) return;
  pass.ops->Rope(qkv, rope_, {num_heads_ + num_kv_heads_, head_dim_, turned_dim_}, pass.positions(), inverse);
}

void Attention::Project(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                        const AttentionActivations& activations, kernels::Matrix qkv) const {
  if (!q_norm_.has_value()) return qkv_.Forward(pass, weights, x, qkv);
  const int64_t q = query_width(), k = key_width();
  const kernels::Matrix qk = activations.qk.matrix();
  qkv_.ForwardColumns(pass, weights, x, 0, qk);
  qkv_.ForwardColumns(pass, weights, x, q + k, Columns(qkv, q + k, k));
  q_norm_->Forward(pass, weights, Columns(qk, 0, q), activations.q_norm, Columns(qkv, 0, q));
  k_norm_->Forward(pass, weights, Columns(qk, q, k), activations.k_norm, Columns(qkv, q, k));
}

void Attention::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                        const AttentionActivations& activations, kernels::Matrix y) const {
  const kernels::Matrix qkv = activations.qkv.matrix();
  if (limit_ > 0) {
    Project(pass, weights, x, activations, activations.unclipped.matrix());
    pass.ops->Clip(qkv, activations.unclipped.matrix(), limit_);
  } else {
    Project(pass, weights, x, activations, qkv);
  }
  Rotate(pass, qkv, false);
  if (pass.continued != nullptr) {
    AttendKept(pass, qkv, activations);
  } else {
    pass.ops->AttentionForward(activations.out.matrix(), activations.lse.f32(), qkv, ShapeOf(pass));
  }
  if (sinks_ >= 0) {
    pass.ops->SinkForward(activations.out.matrix(), activations.lse.f32(), weights[sinks_].f32(), ShapeOf(pass));
  }
  out_.Forward(pass, weights, activations.out.matrix(), y);
}

void Attention::AttendKept(const Pass& pass, kernels::ConstMatrix qkv, const AttentionActivations& activations) const {
  const ContinuedBatch& batch = *pass.continued;
  const int64_t bytes = batch.kept.Bytes(num_kv_heads_, head_dim_, pass.dtype);
  pass.ops->CachedAttention({.out = activations.out.matrix(),
                             .qkv = qkv,
                             .keys = Advance(batch.kept.data, 2 * (layer_ - 1) * bytes),
                             .values = Advance(batch.kept.data, (2 * (layer_ - 1) + 1) * bytes),
                             .sequences = batch.kept.sequences,
                             .capacity = batch.kept.capacity,
                             .sequence_of = batch.sequence_of,
                             .position_of = batch.position_of,
                             .num_heads = num_heads_,
                             .num_kv_heads = num_kv_heads_,
                             .head_dim = head_dim_,
                             .window = window_,
                             .lse = sinks_ >= 0 ? activations.lse.f32() : nullptr});
}

void Attention::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                         const AttentionActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
  ArenaScope scope(*pass.arena);
  const kernels::Matrix d_out = pass.Activation(query_width()).matrix();
  const kernels::Matrix d_qkv = pass.Activation(qkv_width()).matrix();
  out_.Backward(pass, weights, gradients, activations.out.matrix(), d_y, d_out);
  pass.ops->AttentionBackward(d_qkv, d_out, activations.out.matrix(), activations.lse.f32(), activations.qkv.matrix(),
                              ShapeOf(pass));
  if (sinks_ >= 0 && Wanted(gradients[sinks_])) {
    pass.ops->SinkBackward(gradients[sinks_].f32(), d_out, activations.out.matrix(), activations.lse.f32(),
                           weights[sinks_].f32(), ShapeOf(pass));
  }
  Rotate(pass, d_qkv, true);
  if (limit_ > 0) pass.ops->ClipBackward(d_qkv, activations.unclipped.matrix(), limit_);
  if (q_norm_.has_value()) {
    const int64_t q = query_width(), k = key_width();
    const kernels::Matrix qk = activations.qk.matrix();
    q_norm_->Backward(pass, weights, gradients, Columns(qk, 0, q), activations.q_norm, Columns(d_qkv, 0, q));
    k_norm_->Backward(pass, weights, gradients, Columns(qk, q, k), activations.k_norm, Columns(d_qkv, q, k));
  }
  qkv_.Backward(pass, weights, gradients, x, d_qkv, d_x);
}

float ResidualInitStd(const ModelConfig& config) {
  if (config.norm_position != NormPosition::kBefore) return static_cast<float>(config.init_std);
  return static_cast<float>(config.init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers)));
}

}  // namespace holdfast
