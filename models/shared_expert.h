#pragma once
// The SwiGLU layer beside the experts that every token goes through. With a gate (Qwen2-MoE) it is an expert whose
// weight is sigmoid(<gate, x>): the same operations as those of the experts, with one expert that every row chooses.

#include <optional>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "models/linear.h"

namespace holdfast {

struct SharedExpertActivations {
  Tensor gate_up;  // (R, 2F)
  Tensor act;      // (R, F), weighted if there is a gate
  // Of the gate:
  Tensor logits, scores, weights, lse;        // (R) fp32
  Tensor d_logits;                            // (R) fp32
  Tensor experts, choices, slot_of, offsets;  // (R), offsets (2), int32: every row's choice is expert 0
};

class SharedExpert {
 public:
  SharedExpert(ParameterBuilder& builder, const std::string& name, const ModelConfig& config);

  SharedExpertActivations Allocate(const Pass& pass) const;

  void ForwardUp(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                 const SharedExpertActivations& activations) const;
  /// y (R, C).
  void ForwardDown(const Pass& pass, UnitTensors weights, const SharedExpertActivations& activations,
                   kernels::Matrix y) const;

  // The backward pass, for d_y (R, C), in three parts, because the first two need not wait for what is added up before
  // the gradient of x.
  /// Of the projection down. Overwrites act.
  void BackwardDown(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                    const SharedExpertActivations& activations, kernels::ConstMatrix d_y) const;
  /// Of the gate and the projections up, but for x. Overwrites gate_up.
  void BackwardUp(const Pass& pass, UnitTensors gradients, kernels::ConstMatrix x,
                  const SharedExpertActivations& activations) const;
  /// Adds the gradient of x to sum (R, C) fp32. What reads x besides, the adapters, have their whole backward pass
  /// here.
  void AddInputGradient(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                        const SharedExpertActivations& activations, kernels::Matrix sum) const;

 private:
  void Weigh(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const SharedExpertActivations& a) const;

  int64_t width_;
  int gate_up_;  // in the block's unit
  Linear down_;
  int gate_ = -1;
  std::optional<Adapter> gate_up_adapter_, gate_adapter_;
};

}  // namespace holdfast
