#pragma once
// What experts compute of rows by slot (kernels/experts.h), of all experts of a layer in one product: up, SwiGLU, down,
// and the backward pass. It is the same where weights were acquired (experts.h) and where experts lie
// (expert_parallel.h). As the weight of a choice multiplies what goes down, it multiplies the bias there, too.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/config/config.h"
#include "models/expert_adapter.h"

namespace holdfast {

/// Rows of a layer's experts, and what is computed of them.
struct ExpertSlots {
  kernels::ExpertRows rows;
  const float* weights = nullptr;  // (R, k)
  kernels::Matrix gate_up;         // (S, 2F)
  kernels::Matrix act;             // (S, F), weighted
};

/// Elements of one expert's matrices, and of its biases.
int64_t ExpertMatrixElements(const ModelConfig& config);
int64_t ExpertBiasElements(const ModelConfig& config);

/// Weights and gradients are of the experts' unit, or of some of its parts.
class ExpertMlp {
 public:
  ExpertMlp(const ModelConfig& config, const LoraOptions& lora);

  /// The parameters of one expert.
  void Add(ParameterBuilder& builder, const std::string& name, const ModelConfig& config) const;

  /// Fills gate_up and act of x (S, C).
  void Up(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const ExpertSlots& slots) const;
  /// y (S, C) of act.
  void Down(const Pass& pass, UnitTensors weights, const ExpertSlots& slots, kernels::Matrix y) const;

  // The backward pass in two halves, as what holds d_y may be given x before the second.
  /// Of all but the product up: for d_y (S, C), d_weights (R, k), and the gradient of gate_up in its memory. Overwrites
  /// act.
  void BackwardDown(const Pass& pass, UnitTensors weights, UnitTensors gradients, const ExpertSlots& slots,
                    kernels::ConstMatrix d_y, float* d_weights) const;
  /// Whether BackwardUp reads x.
  bool NeedsInput(UnitTensors gradients) const;
  /// x (S, C) receives its gradient.
  void BackwardUp(const Pass& pass, UnitTensors weights, UnitTensors gradients, const ExpertSlots& slots,
                  kernels::Matrix x) const;

 private:
  /// out (S, N) = x times each expert's `matrix`, plus its bias if there is one, which is multiplied by `bias_weights`
  /// of choices if they are not null.
  void Multiply(const Pass& pass, UnitTensors of_experts, size_t matrix, kernels::ConstMatrix x,
                const float* bias_weights, kernels::Matrix out, const kernels::ExpertRows& rows) const;

  int64_t hidden_size_, width_;
  float limit_;
  bool biased_;
  size_t tensors_;  // of an expert
  std::optional<ExpertAdapter> gate_up_adapter_, down_adapter_;
};

}  // namespace holdfast
