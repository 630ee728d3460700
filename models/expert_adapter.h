#pragma once
// LoRA beside one matrix of each expert of a layer (models/adapter.h has it for a layer that all rows go through):
// every expert has a pair of matrices of its own, and rows by slot go through the pair of their expert, all in one
// product.

#include <string>

#include "models/parameter_builder.h"
#include "models/pass.h"

namespace holdfast {

/// Elements from one expert's tensor to the next one's: `which` of those of each expert, which has `tensors`.
int64_t ExpertStep(UnitTensors of_experts, size_t which, size_t tensors);

class ExpertAdapter {
 public:
  /// `a` is the place of the first matrix among the tensors of an expert, the second one's is the next; each expert has
  /// `tensors`.
  ExpertAdapter(const LoraOptions& lora, size_t a, size_t tensors)
      : rank_(lora.rank), scale_(lora.scale), a_(a), tensors_(tensors) {}

  /// Adds "<name>.lora_a" (rank, in) and "<name>.lora_b" (out, rank) of one expert.
  static void Add(ParameterBuilder& builder, const std::string& name, int64_t in, int64_t out);

  // As those of Adapter, for x (S, in) and y (S, out) by slot, without dropout; `weights` and `gradients` are of the
  // experts' unit.
  void Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, kernels::Matrix y,
               const kernels::ExpertRows& rows) const;
  Tensor Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                  kernels::ConstMatrix d_y, const kernels::ExpertRows& rows) const;
  void AddInputGradient(const Pass& pass, UnitTensors weights, const Tensor& d_inner, kernels::Matrix d_x,
                        const kernels::ExpertRows& rows) const;

 private:
  /// scale * a op(b of the expert), (S, rank) in the dtype of activations, on the arena.
  Tensor Narrow(const Pass& pass, kernels::ConstMatrix a, UnitTensors weights, size_t which, bool transpose_b,
                const kernels::ExpertRows& rows) const;
  /// c (S, n) += inner op(b of the expert).
  void Widen(const Pass& pass, const Tensor& inner, UnitTensors weights, size_t which, bool transpose_b,
             kernels::Matrix c, const kernels::ExpertRows& rows) const;
  void Gradient(const Pass& pass, UnitTensors gradients, size_t which, kernels::ConstMatrix a, kernels::ConstMatrix b,
                const kernels::ExpertRows& rows) const;

  int64_t rank_;
  float scale_;
  size_t a_, tensors_;
};

}  // namespace holdfast
