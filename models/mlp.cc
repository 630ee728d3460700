#include "models/mlp.h"

#include "models/attention.h"

namespace holdfast {

namespace {

/// Of a projection to gate and up, `width` columns each, or with GELU to up alone.
std::vector<Adapter::Segment> AdaptedUp(const LoraOptions& lora, bool gated, int64_t width) {
  if (!gated) return AdaptedIf(lora.up, lora, width);
  if (lora.one_gate_up) return AdaptedIf(lora.up, lora, 2 * width);
  std::vector<Adapter::Segment> segments = AdaptedIf(lora.gate, lora, width);
  if (lora.rank > 0 && lora.up) segments.push_back({width, width});
  return segments;
}

}  // namespace

Mlp::Mlp(ParameterBuilder& builder, const std::string& name, const ModelConfig& config)
    : gated_(config.HasMlpGate()),
      gate_(config.activation == ActivationKind::kGeglu ? kernels::GateKind::kGelu : kernels::GateKind::kSilu),
      intermediate_size_(config.intermediate_size),
      up_(builder, name + (gated_ ? ".gate_up" : ".up"),
          {.in = config.hidden_size,
           .out = gated_ ? 2 * intermediate_size_ : intermediate_size_,
           .fused = gated_ ? std::vector{intermediate_size_, intermediate_size_} : std::vector<int64_t>{},
           .bias = config.HasMlpBias(),
           .init_std = static_cast<float>(config.init_std),
           .adapted = AdaptedUp(builder.lora(), gated_, intermediate_size_)}),
      down_(builder, name + ".down",
            {.in = intermediate_size_,
             .out = config.hidden_size,
             .bias = config.HasMlpBias(),
             .init_std = ResidualInitStd(config),
             .role = ParameterRole::kBranchOutput,
             .adapted = AdaptedIf(builder.lora().down, builder.lora(), config.hidden_size)}) {}

MlpActivations Mlp::Allocate(const Pass& pass) const {
  MlpActivations activations;
  activations.up = pass.Activation(gated_ ? 2 * intermediate_size_ : intermediate_size_);
  activations.act = pass.Activation(intermediate_size_);
  return activations;
}

void Mlp::ForwardUp(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x,
                    const MlpActivations& activations) const {
  const kernels::Matrix up = activations.up.matrix(), act = activations.act.matrix();
  if (gated_) {
    up_.Forward(pass, weights, x, up);
    pass.ops->GatedForward(act, up, gate_);
  } else {
    up_.ForwardGelu(pass, weights, x, act, up);
  }
}

void Mlp::ForwardDown(const Pass& pass, UnitTensors weights, const MlpActivations& activations,
                      kernels::Matrix y) const {
  down_.Forward(pass, weights, activations.act.matrix(), y);
}

void Mlp::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                   const MlpActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x) const {
  const kernels::Matrix up = activations.up.matrix(), act = activations.act.matrix();
  const kernels::Matrix d_act = act;  // the widest tensor of the block: reused as soon as d_W of `down` is taken
  if (gated_) {
    down_.Backward(pass, weights, gradients, act, d_y, d_act);
    ArenaScope scope(*pass.arena);
    const kernels::Matrix d_up = pass.Activation(2 * intermediate_size_).matrix();
    pass.ops->GatedBackward(d_up, d_act, up, gate_);
    up_.Backward(pass, weights, gradients, x, d_up, d_x);
  } else {
    down_.BackwardGelu(pass, weights, gradients, act, up, d_y, d_act);
    up_.Backward(pass, weights, gradients, x, d_act, d_x);
  }
}

}  // namespace holdfast
