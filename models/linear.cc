#include "models/linear.h"

namespace holdfast {

Linear::Linear(ParameterBuilder& builder, const std::string& name, const Options& options)
    : weight_(
          builder.AddMatrix(name + ".weight", options.out, options.in, options.init_std, options.role, options.fused)) {
  const bool branch = options.role == ParameterRole::kBranchOutput;
  const ParameterRole of_bias = branch ? ParameterRole::kBranchBias : ParameterRole::kVector;
  if (options.bias) bias_ = builder.AddVector(name + ".bias", options.out, InitKind::kZeros, of_bias);
  if (!options.adapted.empty()) adapter_.emplace(builder, name, options.in, options.adapted);
}

void Linear::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y) const {
  pass.ops->Gemm(
      {.a = x, .b = weights[weight_].matrix(), .transpose_b = true, .c = y, .bias = Bias(weights), .pre_gelu = {}});
  if (adapter_.has_value()) adapter_->Forward(pass, weights, x, 0, y);
}

void Linear::ForwardColumns(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, int64_t first,
                            kernels::Matrix y) const {
  pass.ops->Gemm({.a = x,
                  .b = Rows(weights[weight_], first, y.cols),
                  .transpose_b = true,
                  .c = y,
                  .bias = Advance(Bias(weights), first),
                  .pre_gelu = {}});
  if (adapter_.has_value()) adapter_->Forward(pass, weights, x, first, y);
}

void Linear::ForwardGelu(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y,
                         kernels::Matrix pre_gelu) const {
  if (adapter_.has_value()) {
    Forward(pass, weights, x, pre_gelu);
    return pass.ops->GeluForward(y, pre_gelu);
  }
  pass.ops->Gemm({.a = x,
                  .b = weights[weight_].matrix(),
                  .transpose_b = true,
                  .c = y,
                  .bias = Bias(weights),
                  .gelu = true,
                  .pre_gelu = pre_gelu});
}

void Linear::BackwardGelu(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                          kernels::ConstMatrix pre_gelu, kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
  float* d_bias = bias_ >= 0 && Wanted(gradients[bias_]) ? gradients[bias_].f32() : nullptr;
  if (Wanted(gradients[weight_])) {
    pass.ops->Gemm(
        {.a = d_y, .transpose_a = true, .b = x, .c = gradients[weight_].matrix(), .pre_gelu = {}, .a_sums = d_bias});
  } else if (d_bias != nullptr) {
    pass.ops->ColumnSum(d_bias, d_y);
  }
  const ArenaScope scope(*pass.arena);
  const kernels::ConstMatrix weight = weights[weight_].matrix();
  if (!adapter_.has_value()) {  // last: it may overwrite x
    return pass.ops->Gemm({.a = d_y, .b = weight, .c = d_x, .pre_gelu = {}, .gelu_input = pre_gelu});
  }
  const Tensor d_inner = adapter_->Backward(pass, weights, gradients, x, d_y);
  pass.ops->Gemm({.a = d_y, .b = weight, .c = d_x, .pre_gelu = {}});
  adapter_->AddInputGradient(pass, weights, d_inner, d_x);
  if (pre_gelu.data != nullptr) pass.ops->GeluBackward(d_x, d_x, pre_gelu);
}

}  // namespace holdfast
