#include "models/expert_mlp.h"

#include "models/attention.h"

namespace holdfast {
namespace {

// The tensors of an expert, of which some have biases, in the order of the matrices. Adapters follow: two pairs of
// matrices, each named by its first.
enum : size_t { kGateUp, kDown, kWithoutBiases, kGateUpBias = kWithoutBiases, kDownBias, kWithBiases };

}  // namespace

int64_t ExpertMatrixElements(const ModelConfig& config) {
  return 3 * config.expert_intermediate_size * config.hidden_size;
}

int64_t ExpertBiasElements(const ModelConfig& config) {
  return config.expert_bias ? 2 * config.expert_intermediate_size + config.hidden_size : 0;
}

ExpertMlp::ExpertMlp(const ModelConfig& config, const LoraOptions& lora)
    : hidden_size_(config.hidden_size),
      width_(config.expert_intermediate_size),
      limit_(static_cast<float>(config.swiglu_limit)),
      biased_(config.expert_bias),
      tensors_(biased_ ? kWithBiases : kWithoutBiases) {
  if (!lora.experts) return;
  const size_t first = tensors_;
  tensors_ += 4;
  gate_up_adapter_.emplace(lora, first, tensors_);
  down_adapter_.emplace(lora, first + 2, tensors_);
}

void ExpertMlp::Add(ParameterBuilder& builder, const std::string& name, const ModelConfig& config) const {
  builder.AddMatrix(name + ".gate_up.weight", 2 * width_, hidden_size_, static_cast<float>(config.init_std),
                    ParameterRole::kHidden, {width_, width_});
  builder.AddMatrix(name + ".down.weight", hidden_size_, width_, ResidualInitStd(config), ParameterRole::kBranchOutput);
  if (biased_) {
    builder.AddVector(name + ".gate_up.bias", 2 * width_, InitKind::kZeros, ParameterRole::kVector);
    builder.AddVector(name + ".down.bias", hidden_size_, InitKind::kZeros, ParameterRole::kBranchBias);
  }
  if (!gate_up_adapter_.has_value()) return;
  ExpertAdapter::Add(builder, name + ".gate_up", hidden_size_, 2 * width_);
  ExpertAdapter::Add(builder, name + ".down", width_, hidden_size_);
}

void ExpertMlp::Multiply(const Pass& pass, UnitTensors of_experts, size_t matrix, kernels::ConstMatrix x,
                         const float* bias_weights, kernels::Matrix out, const kernels::ExpertRows& rows) const {
  kernels::ExpertGemmArgs args = {.a = x,
                                  .b = of_experts[matrix].matrix(),
                                  .transpose_b = true,
                                  .b_step = ExpertStep(of_experts, matrix, tensors_),
                                  .c = out};
  if (biased_) {
    const size_t bias = kGateUpBias + matrix;
    args.bias = of_experts[bias].f32();
    args.bias_step = ExpertStep(of_experts, bias, tensors_);
    args.bias_weights = bias_weights;
  }
  pass.ops->ExpertGemm(args, rows);
}

void ExpertMlp::Up(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, const ExpertSlots& slots) const {
  Multiply(pass, weights, kGateUp, x, nullptr, slots.gate_up, slots.rows);
  if (gate_up_adapter_.has_value()) gate_up_adapter_->Forward(pass, weights, x, slots.gate_up, slots.rows);
  pass.ops->ExpertSwigluForward(slots.act, slots.gate_up, slots.weights, limit_, slots.rows);
}

void ExpertMlp::Down(const Pass& pass, UnitTensors weights, const ExpertSlots& slots, kernels::Matrix y) const {
  Multiply(pass, weights, kDown, slots.act, slots.weights, y, slots.rows);
  if (down_adapter_.has_value()) down_adapter_->Forward(pass, weights, slots.act, y, slots.rows);
}

void ExpertMlp::BackwardDown(const Pass& pass, UnitTensors weights, UnitTensors gradients, const ExpertSlots& slots,
                             kernels::ConstMatrix d_y, float* d_weights) const {
  const kernels::ExpertRows& rows = slots.rows;
  if (Wanted(gradients[kDown])) {
    pass.ops->ExpertGradient(
        {.a = d_y, .b = slots.act, .c = gradients[kDown].matrix(), .c_step = ExpertStep(gradients, kDown, tensors_)},
        rows);
  }
  const ArenaScope scope(*pass.arena);
  Tensor d_inner;
  if (down_adapter_.has_value()) d_inner = down_adapter_->Backward(pass, weights, gradients, slots.act, d_y, rows);
  pass.ops->ExpertGemm(
      {.a = d_y, .b = weights[kDown].matrix(), .b_step = ExpertStep(weights, kDown, tensors_), .c = slots.act}, rows);
  if (down_adapter_.has_value()) down_adapter_->AddInputGradient(pass, weights, d_inner, slots.act, rows);
  pass.ops->ExpertSwigluBackward(slots.gate_up, d_weights, slots.act, slots.gate_up, slots.weights, limit_, rows);
  if (!biased_) return;
  pass.ops->ExpertBiasBackward({.d_out = d_y,
                                .weights = slots.weights,
                                .d_bias = gradients[kDownBias].f32(),  // null if it is frozen
                                .d_bias_step = ExpertStep(gradients, kDownBias, tensors_),
                                .bias = weights[kDownBias].f32(),
                                .bias_step = ExpertStep(weights, kDownBias, tensors_),
                                .d_weights = d_weights},
                               rows);
}

bool ExpertMlp::NeedsInput(UnitTensors gradients) const {
  return Wanted(gradients[kGateUp]) || gate_up_adapter_.has_value();
}

void ExpertMlp::BackwardUp(const Pass& pass, UnitTensors weights, UnitTensors gradients, const ExpertSlots& slots,
                           kernels::Matrix x) const {
  const kernels::ExpertRows& rows = slots.rows;
  if (biased_ && Wanted(gradients[kGateUpBias])) {
    pass.ops->ExpertBiasBackward({.d_out = slots.gate_up,
                                  .d_bias = gradients[kGateUpBias].f32(),
                                  .d_bias_step = ExpertStep(gradients, kGateUpBias, tensors_)},
                                 rows);
  }
  if (Wanted(gradients[kGateUp])) {
    pass.ops->ExpertGradient({.a = slots.gate_up,
                              .b = x,
                              .c = gradients[kGateUp].matrix(),
                              .c_step = ExpertStep(gradients, kGateUp, tensors_)},
                             rows);
  }
  const ArenaScope scope(*pass.arena);
  Tensor d_inner;
  if (gate_up_adapter_.has_value()) {
    d_inner = gate_up_adapter_->Backward(pass, weights, gradients, x, slots.gate_up, rows);
  }
  pass.ops->ExpertGemm(
      {.a = slots.gate_up, .b = weights[kGateUp].matrix(), .b_step = ExpertStep(weights, kGateUp, tensors_), .c = x},
      rows);
  if (gate_up_adapter_.has_value()) gate_up_adapter_->AddInputGradient(pass, weights, d_inner, x, rows);
}

}  // namespace holdfast
