#include "models/norm.h"

namespace holdfast {
namespace {

kernels::NormStats Stats(const NormActivations& activations) {
  return {.mean = activations.mean.f32(), .rstd = activations.rstd.f32()};
}

}  // namespace

Norm::Norm(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, ParameterRole role)
    : kind_(config.norm == NormType::kLayerNorm ? kernels::NormKind::kLayerNorm : kernels::NormKind::kRmsNorm),
      eps_(static_cast<float>(config.norm_eps)),
      weight_(builder.AddVector(name + ".weight", config.hidden_size, InitKind::kConstant, role)) {
  if (kind_ == kernels::NormKind::kLayerNorm) {
    bias_ = builder.AddVector(name + ".bias", config.hidden_size, InitKind::kZeros, role);
  }
}

NormActivations Norm::Allocate(const Pass& pass, int64_t rows) const {
  NormActivations activations;
  if (kind_ == kernels::NormKind::kLayerNorm) activations.mean = pass.arena->Allocate(DType::kF32, {rows});
  activations.rstd = pass.arena->Allocate(DType::kF32, {rows});
  return activations;
}

kernels::NormParams Norm::Params(UnitTensors weights) const {
  return {
      .kind = kind_, .eps = eps_, .weight = weights[weight_].f32(), .bias = bias_ < 0 ? nullptr : weights[bias_].f32()};
}

void Norm::Forward(const Pass& pass, UnitTensors weights, const ResidualStream& in, const NormActivations& activations,
                   kernels::Matrix sum, kernels::Matrix out) const {
  if (!in.has_branch) return Forward(pass, weights, in.residual, activations, out);
  pass.ops->NormForward(out, sum, Stats(activations), in.residual, in.branch, Params(weights), in.dropout);
}

void Norm::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const NormActivations& activations,
                   kernels::Matrix out) const {
  pass.ops->NormForward(out, {}, Stats(activations), x, {}, Params(weights), {});
}

void Norm::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                    const NormActivations& activations, kernels::ConstMatrix d_out, kernels::ConstMatrix d_residual,
                    kernels::Matrix d_x) const {
  pass.ops->NormBackward(d_x, gradients[weight_].f32(), bias_ < 0 ? nullptr : gradients[bias_].f32(), d_residual, d_out,
                         x, Stats(activations), Params(weights));
}

HeadNorm::HeadNorm(ParameterBuilder& builder, const std::string& name, int64_t heads, const ModelConfig& config,
                   ParameterRole role)
    : groups_(config.qk_norm_joint ? 1 : heads),
      eps_(static_cast<float>(config.norm_eps)),
      weight_(builder.AddVector(name + ".weight", heads / groups_ * config.head_dim, InitKind::kConstant, role)) {}

NormActivations HeadNorm::Allocate(const Pass& pass) const {
  return {.mean = {}, .rstd = pass.arena->Allocate(DType::kF32, {pass.rows(), groups_})};
}

kernels::NormParams HeadNorm::Params(UnitTensors weights) const {
  return {.kind = kernels::NormKind::kRmsNorm,
          .eps = eps_,
          .weight = weights[weight_].f32(),
          .bias = nullptr,
          .groups = groups_};
}

void HeadNorm::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                       const NormActivations& activations, kernels::Matrix out) const {
  pass.ops->NormForward(out, {}, Stats(activations), x, {}, Params(weights), {});
}

void HeadNorm::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                        const NormActivations& activations, kernels::Matrix d) const {
  pass.ops->NormBackward(d, gradients[weight_].f32(), nullptr, {}, d, x, Stats(activations), Params(weights));
}

}  // namespace holdfast
