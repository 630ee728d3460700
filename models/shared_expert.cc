#include "models/shared_expert.h"

#include "models/attention.h"

namespace holdfast {
namespace {

constexpr kernels::RouterShape kGate{
    .num_experts = 1, .chosen = 1, .score = kernels::RouterScore::kSigmoid, .normalize = false};

kernels::RouterOut OutOf(const SharedExpertActivations& a) {
  return {a.scores.f32(), a.experts.i32(), a.weights.f32(), a.lse.f32()};
}

kernels::ExpertRows RowsOf(const Pass& pass, const SharedExpertActivations& a) {
  return {.num_experts = 1,
          .chosen = 1,
          .slots = pass.rows(),
          .offsets = a.offsets.i32(),
          .choices = a.choices.i32(),
          .slot_of = a.slot_of.i32()};
}

}  // namespace

SharedExpert::SharedExpert(ParameterBuilder& builder, const std::string& name, const ModelConfig& config)
    : width_(config.shared_expert_intermediate_size),
      gate_up_(builder.AddMatrix(name + ".gate_up.weight", 2 * width_, config.hidden_size,
                                 static_cast<float>(config.init_std), ParameterRole::kHidden, {width_, width_})),
      down_(builder, name + ".down",
            {.in = width_,
             .out = config.hidden_size,
             .init_std = ResidualInitStd(config),
             .role = ParameterRole::kBranchOutput,
             .adapted = AdaptedIf(builder.lora().shared_expert, builder.lora(), config.hidden_size)}) {
  const LoraOptions& lora = builder.lora();
  if (lora.shared_expert) {
    const std::vector<Adapter::Segment> one = {{0, 2 * width_}}, two = {{0, width_}, {width_, width_}};
    gate_up_adapter_.emplace(builder, name + ".gate_up", config.hidden_size, lora.one_gate_up ? one : two);
  }
  if (!config.shared_expert_gate) return;
  gate_ = builder.AddRouter(name + ".gate.weight", 1, config.hidden_size, static_cast<float>(config.init_std));
  if (!lora.shared_expert_gate) return;
  gate_adapter_.emplace(builder, name + ".gate", config.hidden_size, AdaptedIf(true, lora, 1), /*fp32=*/true);
}

SharedExpertActivations SharedExpert::Allocate(const Pass& pass) const {
  SharedExpertActivations a;
  a.gate_up = pass.Activation(2 * width_);
  a.act = pass.Activation(width_);
  if (gate_ < 0) return a;
  for (Tensor* tensor : {&a.logits, &a.scores, &a.weights, &a.d_logits})
    *tensor = pass.arena->Allocate(DType::kF32, {pass.rows(), 1});
  for (Tensor* tensor : {&a.lse, &a.experts, &a.choices, &a.slot_of}) {
    *tensor = pass.arena->Allocate(DType::kF32, {pass.rows()});
  }
  a.offsets = pass.arena->Allocate(DType::kF32, {2});
  return a;
}

void SharedExpert::Weigh(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                         const SharedExpertActivations& a) const {
  pass.ops->Gemm({.a = x, .b = weights[gate_].matrix(), .transpose_b = true, .c = a.logits.matrix(), .pre_gelu = {}});
  if (gate_adapter_.has_value()) gate_adapter_->Forward(pass, weights, x, 0, a.logits.matrix());
  pass.ops->RouterForward(OutOf(a), a.logits.matrix(), kGate);
  pass.ops->SortChoices({a.offsets.i32(), a.choices.i32(), a.slot_of.i32()}, a.experts.i32(), a.weights.f32(),
                        pass.rows(), kGate);
}

void SharedExpert::ForwardUp(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                             const SharedExpertActivations& a) const {
  const kernels::Matrix gate_up = a.gate_up.matrix();
  pass.ops->Gemm({.a = x, .b = weights[gate_up_].matrix(), .transpose_b = true, .c = gate_up, .pre_gelu = {}});
  if (gate_up_adapter_.has_value()) gate_up_adapter_->Forward(pass, weights, x, 0, gate_up);
  if (gate_ < 0) return pass.ops->GatedForward(a.act.matrix(), gate_up, kernels::GateKind::kSilu);
  Weigh(pass, weights, x, a);
  pass.ops->ExpertSwigluForward(a.act.matrix(), gate_up, a.weights.f32(), /*limit=*/0, RowsOf(pass, a));
}

void SharedExpert::ForwardDown(const Pass& pass, UnitTensors weights, const SharedExpertActivations& a,
                               kernels::Matrix y) const {
  down_.Forward(pass, weights, a.act.matrix(), y);
}

void SharedExpert::BackwardDown(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                                const SharedExpertActivations& a, kernels::ConstMatrix d_y) const {
  down_.Backward(pass, weights, gradients, a.act.matrix(), d_y, a.act.matrix());
}

void SharedExpert::BackwardUp(const Pass& pass, UnitTensors gradients, kernels::ConstMatrix x,
                              const SharedExpertActivations& a) const {
  const kernels::Matrix gate_up = a.gate_up.matrix(), act = a.act.matrix();
  if (gate_ < 0) {
    pass.ops->GatedBackward(gate_up, act, gate_up, kernels::GateKind::kSilu);
  } else {
    const ArenaScope scope(*pass.arena);
    const Tensor d_weights = pass.arena->Allocate(DType::kF32, {pass.rows(), 1});
    const kernels::Matrix d_logits = a.d_logits.matrix();
    pass.ops->ExpertSwigluBackward(gate_up, d_weights.f32(), act, gate_up, a.weights.f32(), /*limit=*/0,
                                   RowsOf(pass, a));
    pass.ops->RouterBackward(
        {.d_logits = d_logits, .logits = a.logits.matrix(), .forward = OutOf(a), .d_weights = d_weights.f32()}, kGate);
    if (Wanted(gradients[gate_])) {
      pass.ops->Gemm({.a = d_logits, .transpose_a = true, .b = x, .c = gradients[gate_].matrix(), .pre_gelu = {}});
    }
  }
  if (!Wanted(gradients[gate_up_])) return;
  pass.ops->Gemm({.a = gate_up, .transpose_a = true, .b = x, .c = gradients[gate_up_].matrix(), .pre_gelu = {}});
}

void SharedExpert::AddInputGradient(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                                    kernels::ConstMatrix x, const SharedExpertActivations& a,
                                    kernels::Matrix sum) const {
  if (gate_ >= 0) {
    pass.ops->Gemm(
        {.a = a.d_logits.matrix(), .b = weights[gate_].matrix(), .c = sum, .accumulate = true, .pre_gelu = {}});
  }
  pass.ops->Gemm(
      {.a = a.gate_up.matrix(), .b = weights[gate_up_].matrix(), .c = sum, .accumulate = true, .pre_gelu = {}});
  const auto add = [&](const Adapter& adapter, const Tensor& d_y) {
    const ArenaScope scope(*pass.arena);
    adapter.AddInputGradient(pass, weights, adapter.Backward(pass, weights, gradients, x, d_y.matrix()), sum);
  };
  if (gate_adapter_.has_value()) add(*gate_adapter_, a.d_logits);
  if (gate_up_adapter_.has_value()) add(*gate_up_adapter_, a.gate_up);
}

}  // namespace holdfast
