#pragma once
// y = x W^T (+ bias), with W (out, in).

#include <optional>
#include <string>
#include <vector>

#include "models/adapter.h"
#include "models/parameter_builder.h"
#include "models/pass.h"

namespace holdfast {

class Linear {
 public:
  struct Options {
    int64_t in = 0, out = 0;
    std::vector<int64_t> fused = {};  // of W: ParameterSpec::fused
    bool bias = false;
    float init_std = 0;
    ParameterRole role = ParameterRole::kHidden;  // or kBranchOutput
    std::vector<Adapter::Segment> adapted = {};   // columns of y that have adapters; none: no adapter
  };

  Linear(ParameterBuilder& builder, const std::string& name, const Options& options);

  /// y (R, out) = x (R, in) W^T + bias.
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y) const;

  /// y (R, n) = columns first .. first + n - 1 of what Forward gives.
  void ForwardColumns(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, int64_t first,
                      kernels::Matrix y) const;

  /// y = gelu(value) and pre_gelu (R, out) = value, for value = x W^T + bias.
  void ForwardGelu(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y,
                   kernels::Matrix pre_gelu) const;

  /// d_W = d_y^T x, d_bias = sum of d_y over rows; d_x (R, in) = d_y W. d_x may be the memory of x.
  void Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
    BackwardGelu(pass, weights, gradients, x, {}, d_y, d_x);
  }

  /// The same where x = gelu(pre_gelu), (R, in): d_x is the gradient of pre_gelu. Without pre_gelu, that of x.
  void BackwardGelu(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                    kernels::ConstMatrix pre_gelu, kernels::ConstMatrix d_y, kernels::Matrix d_x) const;

 private:
  const float* Bias(UnitTensors weights) const { return bias_ < 0 ? nullptr : weights[bias_].f32(); }

  int weight_, bias_ = -1;
  std::optional<Adapter> adapter_;
};

}  // namespace holdfast
