#pragma once
// Causal self-attention with grouped query heads, perhaps within a window: one projection for query, key and value,
// optional norms of their heads, rotary positions and sinks, one output projection.

#include <optional>
#include <string>

#include "framework/config/config.h"
#include "models/linear.h"
#include "models/norm.h"

namespace holdfast {

struct AttentionActivations {
  Tensor qk;                       // (R, (H + G) * D), before the norms; none without them
  NormActivations q_norm, k_norm;  // likewise
  Tensor unclipped;                // (R, (H + 2G) * D), after norms; none without a limit
  Tensor qkv;                      // (R, (H + 2G) * D), after norms, limit and rotation
  Tensor lse;                      // (B, H, T) fp32
  Tensor out;                      // (R, H * D)
};

class Attention {
 public:
  /// `layer` names its dropout. `rope` (max T, D), or null for no rotation, must outlive this.
  Attention(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
            const float* rope);

  AttentionActivations Allocate(const Pass& pass) const;

  /// y (R, C) for x (R, C).
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const AttentionActivations& activations,
               kernels::Matrix y) const;

  /// d_x (R, C) for d_y (R, C). d_x may be the memory of x.
  void Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                const AttentionActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x) const;

 private:
  int64_t query_width() const { return num_heads_ * head_dim_; }
  int64_t key_width() const { return num_kv_heads_ * head_dim_; }
  int64_t qkv_width() const { return query_width() + 2 * key_width(); }
  kernels::AttentionShape ShapeOf(const Pass& pass) const;
  /// Fills `qkv`, neither limited nor rotated yet, and what else the norms need.
  void Project(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const AttentionActivations& activations,
               kernels::Matrix qkv) const;
  /// The attention of rows whose sequences' keys and values are kept.
  void AttendKept(const Pass& pass, kernels::ConstMatrix qkv, const AttentionActivations& activations) const;
  void Rotate(const Pass& pass, kernels::Matrix qkv, bool inverse) const;

  int64_t num_heads_, num_kv_heads_, head_dim_, turned_dim_, window_, layer_;
  float limit_;
  const float* rope_;
  Linear qkv_;
  std::optional<HeadNorm> q_norm_, k_norm_;
  int sinks_ = -1;  // in the block's unit
  Linear out_;
};

/// Standard deviation of projections that write into the residual stream: init_std / sqrt(2 * layers), so that the
/// stream's variance does not grow with depth (Radford et al. 2019, section 2.3). Of those whose output passes a norm
/// first, init_std.
float ResidualInitStd(const ModelConfig& config);

}  // namespace holdfast
