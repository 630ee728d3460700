#include "models/expert_adapter.h"

#include "models/adapter.h"

namespace holdfast {

int64_t ExpertStep(UnitTensors of_experts, size_t which, size_t tensors) {
  if (of_experts.size() < 2 * tensors) return 0;
  const Tensor &first = of_experts[which], &second = of_experts[which + tensors];
  const auto bytes = static_cast<const char*>(second.data) - static_cast<const char*>(first.data);
  return bytes / static_cast<int64_t>(kernels::SizeOf(first.dtype));
}

void ExpertAdapter::Add(ParameterBuilder& builder, const std::string& name, int64_t in, int64_t out) {
  builder.AddAdapter(name + ".lora_a", builder.lora().rank, in, AdapterInitStd(in));
  builder.AddAdapter(name + ".lora_b", out, builder.lora().rank, 0);
}

Tensor ExpertAdapter::Narrow(const Pass& pass, kernels::ConstMatrix a, UnitTensors weights, size_t which,
                             bool transpose_b, const kernels::ExpertRows& rows) const {
  const Tensor sums = pass.Floats({rows.slots, rank_});
  pass.ops->ExpertGemm({.a = a,
                        .b = weights[which].matrix(),
                        .transpose_b = transpose_b,
                        .b_step = ExpertStep(weights, which, tensors_),
                        .c = sums.matrix()},
                       rows);
  const int64_t n = sums.shape.elements();
  pass.ops->Axpby(sums.f32(), scale_, sums.f32(), 0, sums.f32(), n);
  if (pass.dtype == DType::kF32) return sums;
  const Tensor rounded = pass.arena->Allocate(pass.dtype, sums.shape);
  pass.ops->CastToBf16(rounded.bf16(), sums.f32(), n);
  return rounded;
}

void ExpertAdapter::Widen(const Pass& pass, const Tensor& inner, UnitTensors weights, size_t which, bool transpose_b,
                          kernels::Matrix c, const kernels::ExpertRows& rows) const {
  pass.ops->ExpertGemm({.a = inner.matrix(),
                        .b = weights[which].matrix(),
                        .transpose_b = transpose_b,
                        .b_step = ExpertStep(weights, which, tensors_),
                        .c = c,
                        .accumulate = true},
                       rows);
}

void ExpertAdapter::Gradient(const Pass& pass, UnitTensors gradients, size_t which, kernels::ConstMatrix a,
                             kernels::ConstMatrix b, const kernels::ExpertRows& rows) const {
  pass.ops->ExpertGradient(
      {.a = a, .b = b, .c = gradients[which].matrix(), .c_step = ExpertStep(gradients, which, tensors_)}, rows);
}

void ExpertAdapter::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y,
                            const kernels::ExpertRows& rows) const {
  const ArenaScope scope(*pass.arena);
  Widen(pass, Narrow(pass, x, weights, a_, /*transpose_b=*/true, rows), weights, a_ + 1, /*transpose_b=*/true, y, rows);
}

Tensor ExpertAdapter::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                               kernels::ConstMatrix d_y, const kernels::ExpertRows& rows) const {
  const Tensor d_inner = Narrow(pass, d_y, weights, a_ + 1, /*transpose_b=*/false, rows);
  const ArenaScope scope(*pass.arena);
  const Tensor inner = Narrow(pass, x, weights, a_, /*transpose_b=*/true, rows);
  Gradient(pass, gradients, a_ + 1, d_y, inner.matrix(), rows);
  Gradient(pass, gradients, a_, d_inner.matrix(), x, rows);
  return d_inner;
}

void ExpertAdapter::AddInputGradient(const Pass& pass, UnitTensors weights, const Tensor& d_inner, kernels::Matrix d_x,
                                     const kernels::ExpertRows& rows) const {
  Widen(pass, d_inner, weights, a_, /*transpose_b=*/false, d_x, rows);
}

}  // namespace holdfast
