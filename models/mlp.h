#pragma once
// The feed-forward half of a block: up, activation, down. GELU is fused into the up projection. With a gate (SwiGLU,
// GeGLU) gate and up projections are one matrix.

#include <string>

#include "framework/config/config.h"
#include "models/linear.h"

namespace holdfast {

struct MlpActivations {
  Tensor up;   // (R, I) before GELU, or (R, 2I) = [gate | up]
  Tensor act;  // (R, I), input of the down projection
};

class Mlp {
 public:
  Mlp(ParameterBuilder& builder, const std::string& name, const ModelConfig& config);

  MlpActivations Allocate(const Pass& pass) const;

  /// Fills `activations` for x (R, C).
  void ForwardUp(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                 const MlpActivations& activations) const;
  /// y (R, C) from `activations`. Apart from ForwardUp because recomputation does not need it.
  void ForwardDown(const Pass& pass, UnitTensors weights, const MlpActivations& activations, kernels::Matrix y) const;

  /// d_x (R, C) for d_y (R, C). d_x may be the memory of x. Overwrites `activations`.
  void Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                const MlpActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x) const;

 private:
  bool gated_;
  kernels::GateKind gate_;
  int64_t intermediate_size_;
  Linear up_, down_;
};

}  // namespace holdfast
