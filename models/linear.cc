#include "models/linear.h"

namespace holdfast {

Linear::Linear(ParameterBuilder& builder, const std::string& name, const Options& options)
    : weight_(builder.AddMatrix(name + ".weight", options.out, options.in, options.init_std, /*hidden=*/true)) {
  if (options.bias) bias_ = builder.AddVector(name + ".bias", options.out, InitKind::kZeros);
}

void Linear::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y) const {
  pass.ops->Gemm(
      {.a = x, .b = weights[weight_].matrix(), .transpose_b = true, .c = y, .bias = Bias(weights), .pre_gelu = {}});
}

void Linear::ForwardColumns(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, int64_t first,
                            kernels::Matrix y) const {
  pass.ops->Gemm({.a = x,
                  .b = Rows(weights[weight_], first, y.cols),
                  .transpose_b = true,
                  .c = y,
                  .bias = Advance(Bias(weights), first),
                  .pre_gelu = {}});
}

void Linear::ForwardGelu(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y,
                         kernels::Matrix pre_gelu) const {
  pass.ops->Gemm({.a = x,
                  .b = weights[weight_].matrix(),
                  .transpose_b = true,
                  .c = y,
                  .bias = Bias(weights),
                  .gelu = true,
                  .pre_gelu = pre_gelu});
}

void Linear::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                      kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
  pass.ops->Gemm({.a = d_y, .transpose_a = true, .b = x, .c = gradients[weight_].matrix(), .pre_gelu = {}});
  if (bias_ >= 0) pass.ops->ColumnSum(gradients[bias_].f32(), d_y);
  pass.ops->Gemm({.a = d_y, .b = weights[weight_].matrix(), .c = d_x, .pre_gelu = {}});  // last: it may overwrite x
}

}  // namespace holdfast
