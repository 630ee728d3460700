#pragma once
// LayerNorm or RMSNorm of the residual stream, which it also adds up; RMSNorm of heads.

#include <optional>
#include <string>

#include "framework/config/config.h"
#include "models/parameter_builder.h"
#include "models/pass.h"

namespace holdfast {

/// What the backward pass needs besides the norm's input.
struct NormActivations {
  Tensor mean, rstd;  // (R), of single heads (R, heads), fp32; no mean for RMSNorm
};

class Norm {
 public:
  Norm(ParameterBuilder& builder, const std::string& name, const ModelConfig& config,
       ParameterRole role = ParameterRole::kVector);

  NormActivations Allocate(const Pass& pass, int64_t rows) const;

  /// sum (R, C) = value of the stream; out (R, C) = norm(sum). A stream without a branch already is its value: `sum`
  /// is not written then. `sum` may be the memory of the stream's residual.
  void Forward(const Pass& pass, UnitTensors weights, const ResidualStream& in, const NormActivations& activations,
               kernels::Matrix sum, kernels::Matrix out) const;

  /// out (R, C) = norm(x).
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const NormActivations& activations,
               kernels::Matrix out) const;

  /// d_x (R, C) = d_residual (optional; may be d_x itself) + gradient through the norm for d_out at input x.
  void Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                const NormActivations& activations, kernels::ConstMatrix d_out, kernels::ConstMatrix d_residual,
                kernels::Matrix d_x) const;

 private:
  kernels::NormParams Params(UnitTensors weights) const;

  kernels::NormKind kind_;
  float eps_;
  int weight_, bias_ = -1;
};

/// RMSNorm of each head by itself, all with one weight (D), or of all heads at once, with a weight (heads * D).
class HeadNorm {
 public:
  HeadNorm(ParameterBuilder& builder, const std::string& name, int64_t heads, const ModelConfig& config,
           ParameterRole role);
  /// None unless `wanted`.
  static std::optional<HeadNorm> If(bool wanted, ParameterBuilder& builder, const std::string& name, int64_t heads,
                                    const ModelConfig& config, ParameterRole role) {
    return wanted ? std::optional(HeadNorm(builder, name, heads, config, role)) : std::nullopt;
  }

  NormActivations Allocate(const Pass& pass) const;

  /// out (R, heads * D) for x of the same shape.
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const NormActivations& activations,
               kernels::Matrix out) const;

  /// d (R, heads * D) holds the gradient of `out` and receives that of x.
  void Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                const NormActivations& activations, kernels::Matrix d) const;

 private:
  kernels::NormParams Params(UnitTensors weights) const;

  int64_t groups_;
  float eps_;
  int weight_;
};

}  // namespace holdfast
