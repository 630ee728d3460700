#include "models/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "models/attention.h"

namespace holdfast {
namespace {

kernels::RouterShape RouterOf(const ModelConfig& c) {
  return {.num_experts = c.num_experts,
          .chosen = c.experts_per_token,
          .score = c.router_score == RouterScoreKind::kSoftmax ? kernels::RouterScore::kSoftmax
                                                               : kernels::RouterScore::kSigmoid,
          .normalize = c.router_normalize,
          .scale = static_cast<float>(c.router_scale),
          .groups = c.router_groups,
          .groups_chosen = c.router_groups_chosen};
}

constexpr char kLoad[] = "expert_load", kDropped[] = "dropped_choices";

kernels::RouterOut OutOf(const Routing& routing) {
  return {routing.scores.f32(), routing.experts.i32(), routing.weights.f32(), routing.lse.f32()};
}

int64_t Capacity(double factor, int64_t rows, const kernels::RouterShape& shape) {
  const auto choices = static_cast<double>(rows * shape.chosen);
  return static_cast<int64_t>(std::ceil(factor * choices / static_cast<double>(shape.num_experts)));
}

}  // namespace

int64_t ExpertCapacity(const ModelConfig& config, int64_t rows) {
  return Capacity(config.expert_capacity, rows, RouterOf(config));
}

StatisticsLayout RouterStatistics(const ModelConfig& config) {
  const int64_t layers = config.NumExpertLayers();
  if (layers == 0) return StatisticsLayout();
  std::vector<StatisticSpec> statistics = {
      {.name = "router_balance", .combine = Combine::kMean, .size = layers},
      {.name = "router_z", .combine = Combine::kMean, .size = layers},
      {.name = "router_entropy", .combine = Combine::kMean, .size = layers},
      {.name = kLoad, .combine = Combine::kCount, .size = layers * config.num_experts}};
  if (config.expert_capacity > 0) {
    statistics.push_back({.name = kDropped, .combine = Combine::kCount, .size = layers});
  }
  return StatisticsLayout(std::move(statistics));
}

std::vector<Figure> RouterFigures(const ModelConfig& config, const Statistics& step) {
  const int64_t layers = config.NumExpertLayers();
  if (layers == 0) return {};
  const auto mean = [&](const char* name) {
    const absl::Span<const double> of_layers = step.Reals(name);
    return std::accumulate(of_layers.begin(), of_layers.end(), 0.0) / static_cast<double>(layers);
  };
  Figure load{.name = kLoad, .values = {}, .is_list = true};
  Figure dead{.name = "dead_experts", .values = {}, .is_list = true};
  Figure dropped{.name = kDropped, .values = {}, .is_list = true};
  const absl::Span<const int64_t> all = step.Counts(kLoad);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto tokens =
        all.subspan(static_cast<size_t>(layer * config.num_experts), static_cast<size_t>(config.num_experts));
    const auto sum = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
    const auto most = static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
    load.values.push_back(sum > 0 ? most * static_cast<double>(tokens.size()) / sum : 0);
    dead.values.push_back(static_cast<double>(std::count(tokens.begin(), tokens.end(), 0)));
    if (config.expert_capacity == 0) continue;
    dropped.values.push_back(static_cast<double>(step.Counts(kDropped)[static_cast<size_t>(layer)]) / sum);
  }
  const absl::Span<const double> entropy = step.Reals("router_entropy");
  std::vector<Figure> figures = {
      {.name = "balance_loss", .values = {config.router_balance_loss * mean("router_balance")}},
      {.name = "z_loss", .values = {config.router_z_loss * mean("router_z")}},
      std::move(load),
      std::move(dead),
      {.name = "router_entropy", .values = {entropy.begin(), entropy.end()}, .is_list = true}};
  if (config.expert_capacity > 0) figures.push_back(std::move(dropped));
  return figures;
}

std::vector<std::string> RouterFigureNames(const ModelConfig& config) {
  if (config.NumExpertLayers() == 0) return {};
  std::vector<std::string> names{"balance_loss", "z_loss", kLoad, "dead_experts", "router_entropy"};
  if (config.expert_capacity > 0) names.emplace_back(kDropped);
  return names;
}

double DroppedFlopsPerToken(const ModelConfig& config, const std::vector<Figure>& figures) {
  const auto multiplied = static_cast<double>(ExpertMatrixElements(config) + ExpertBiasElements(config));
  double flops = 0;  // forward and backward, of a layer's experts all that a token chooses
  for (const Figure& figure : figures) {
    if (figure.name != kDropped) continue;
    for (const double share : figure.values)
      flops += 6 * multiplied * static_cast<double>(config.experts_per_token) * share;
  }
  return flops;
}

Experts::Experts(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer)
    : shape_(RouterOf(config)),
      hidden_size_(config.hidden_size),
      width_(config.expert_intermediate_size),
      layer_(layer),
      index_((layer - config.first_expert_layer) / config.expert_layer_step),
      num_layers_(config.NumExpertLayers()),
      balance_loss_(config.router_balance_loss),
      z_loss_(config.router_z_loss),
      balance_pooled_(config.router_balance == RouterBalanceKind::kPooled),
      capacity_(config.expert_capacity),
      jitter_(static_cast<float>(config.router_jitter)),
      router_(builder.AddRouter(name + ".router.weight", shape_.num_experts, hidden_size_,
                                static_cast<float>(config.init_std))),
      mlp_(config, builder.lora()),
      elsewhere_(config, mlp_) {
  if (config.expert_bias) {
    logit_bias_ =
        builder.AddVector(name + ".router.bias", shape_.num_experts, InitKind::kZeros, ParameterRole::kVector);
  }
  const LoraOptions& lora = builder.lora();
  if (lora.router) {
    const auto columns = AdaptedIf(true, lora, shape_.num_experts);
    router_adapter_.emplace(builder, name + ".router", hidden_size_, columns, /*fp32=*/true);
  }
  if (config.router_bias) {
    bias_ = builder.AddBalanced(name + ".router_bias", shape_.num_experts,
                                {.statistic = kLoad,
                                 .first = index_ * shape_.num_experts,
                                 .rate = static_cast<float>(config.router_bias_rate)});
  }
  if (config.shared_expert_intermediate_size > 0) shared_.emplace(builder, name + ".shared", config);
}

void Experts::AddExperts(ParameterBuilder& builder, const std::string& name, const ModelConfig& config,
                         bool in_parts) const {
  for (int e = 0; e < static_cast<int>(shape_.num_experts); ++e) {
    if (in_parts) builder.BeginPart(e);
    mlp_.Add(builder, absl::StrCat(name, ".", e), config);
  }
}

Routing Experts::AllocateRouting(const Pass& pass) const {
  const int64_t rows = pass.rows(), n = shape_.num_experts, choices = slots(pass);
  return {.logits = pass.Floats({rows, n}),
          .scores = pass.Floats({rows, n}),
          .weights = pass.Floats({rows, shape_.chosen}),
          .lse = pass.Floats({rows}),
          .experts = pass.Floats({choices}),
          .choices = pass.Floats({choices}),
          .slot_of = pass.Floats({choices}),
          .offsets = pass.Floats({n + 1}),
          .traffic = pass.parts == nullptr ? nullptr : std::make_shared<ExpertTraffic>()};
}

void Experts::Allocate(const Pass& pass, ExpertActivations* activations) const {
  if (pass.parts == nullptr) {
    activations->gate_up = pass.arena->Allocate(pass.dtype, {slots(pass), 2 * width_});
    activations->act = pass.arena->Allocate(pass.dtype, {slots(pass), width_});
  }
  if (shared_.has_value()) activations->shared = shared_->Allocate(pass);
}

kernels::ExpertRows Experts::Rows(const Pass& pass, const Routing& routing) const {
  return {.num_experts = shape_.num_experts,
          .chosen = shape_.chosen,
          .slots = slots(pass),
          .offsets = routing.offsets.i32(),
          .choices = routing.choices.i32(),
          .slot_of = routing.slot_of.i32()};
}

ExpertSlots Experts::SlotsOf(const Pass& pass, const ExpertActivations& activations) const {
  return {.rows = Rows(pass, activations.routing),
          .weights = activations.routing.weights.f32(),
          .gate_up = activations.gate_up.matrix(),
          .act = activations.act.matrix()};
}

kernels::RouterShape Experts::ShapeOf(const Pass& pass, const BlockTensors& weights) const {
  kernels::RouterShape shape = shape_;
  if (bias_ >= 0) shape.bias = weights.own[bias_].f32();
  if (pass.training) shape.capacity = Capacity(capacity_, pass.rows(), shape);
  return shape;
}

kernels::ConstMatrix Experts::RouterInput(const Pass& pass, kernels::ConstMatrix x) const {
  if (!HasJitter(pass)) return x;
  const kernels::Matrix jittered = pass.Floats({pass.rows(), hidden_size_}).matrix();
  pass.ops->Jitter(jittered, x, jitter_, pass.KeyAt(layer_, RandomSite::kRouter));
  return jittered;
}

void Experts::Route(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
                    const ExpertActivations& activations) const {
  const Routing& routing = activations.routing;
  const ArenaScope scope(*pass.arena);
  const kernels::ConstMatrix input = RouterInput(pass, x);
  pass.ops->Gemm({.a = input,
                  .b = weights.own[router_].matrix(),
                  .transpose_b = true,
                  .c = routing.logits.matrix(),
                  .bias = logit_bias_ < 0 ? nullptr : weights.own[logit_bias_].f32(),
                  .pre_gelu = {}});
  if (router_adapter_.has_value()) router_adapter_->Forward(pass, weights.own, input, 0, routing.logits.matrix());
  const kernels::RouterShape shape = ShapeOf(pass, weights);
  pass.ops->RouterForward(OutOf(routing), routing.logits.matrix(), shape);
  pass.ops->SortChoices(
      {routing.offsets.i32(), routing.choices.i32(), routing.slot_of.i32(), pass.training ? CountsOf(pass) : nullptr},
      routing.experts.i32(), routing.weights.f32(), pass.rows(), shape);
}

ExpertParallel::Rows Experts::RowsToSend(const Pass& pass, const Routing& routing, kernels::ConstMatrix x) const {
  return {.slots = Rows(pass, routing), .weights = routing.weights.f32(), .x = x};
}

void Experts::ForwardUp(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
                        const ExpertActivations& activations) const {
  if (shared_.has_value()) shared_->ForwardUp(pass, weights.own, x, activations.shared);
  if (pass.parts != nullptr) return;
  const ExpertSlots slots = SlotsOf(pass, activations);
  const ArenaScope scope(*pass.arena);
  const kernels::Matrix gathered = pass.arena->Allocate(pass.dtype, {slots.rows.slots, hidden_size_}).matrix();
  pass.ops->GatherRows(gathered, x, slots.rows);
  mlp_.Up(pass, weights.experts, gathered, slots);
}

absl::Status Experts::ForwardDown(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
                                  const ExpertActivations& activations, kernels::Matrix y) const {
  const Routing& routing = activations.routing;
  const kernels::ExpertRows rows = Rows(pass, routing);
  const ArenaScope scope(*pass.arena);
  const kernels::Matrix out = pass.arena->Allocate(pass.dtype, {rows.slots, hidden_size_}).matrix();
  if (pass.parts != nullptr) {
    const ExpertParallel::Rows sent = RowsToSend(pass, routing, x);
    const SharedExpertActivations& shared = activations.shared;
    ExpertParallel::Beside beside;
    if (shared_.has_value()) {
      beside = {.there = [&] { shared_->ForwardUp(pass, weights.own, x, shared); },
                .back = [&] { shared_->ForwardDown(pass, weights.own, shared, y); }};
    }
    RETURN_IF_ERROR(elsewhere_.Forward(pass, weights.experts_unit, &sent, out, routing.traffic.get(), beside));
  } else {
    mlp_.Down(pass, weights.experts, SlotsOf(pass, activations), out);
  }
  if (!shared_.has_value()) {
    pass.ops->CombineRows(y, out, {}, rows);
  } else {
    if (pass.parts == nullptr) shared_->ForwardDown(pass, weights.own, activations.shared, y);
    pass.ops->CombineRows(y, out, y, rows);
  }
  return absl::OkStatus();
}

void Experts::BackwardHere(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                           const ExpertActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x,
                           float* d_weights) const {
  const ExpertSlots slots = SlotsOf(pass, activations);
  pass.ops->GatherRows(d_x, d_y, slots.rows);
  mlp_.BackwardDown(pass, weights, gradients, slots, d_x, d_weights);
  if (mlp_.NeedsInput(gradients)) pass.ops->GatherRows(d_x, x, slots.rows);
  mlp_.BackwardUp(pass, weights, gradients, slots, d_x);
}

absl::Status Experts::Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                               kernels::ConstMatrix x, const ExpertActivations& activations, kernels::ConstMatrix d_y,
                               kernels::Matrix d_x) const {
  const Routing& routing = activations.routing;
  const ArenaScope scope(*pass.arena);
  const kernels::Matrix by_slot = pass.arena->Allocate(pass.dtype, {slots(pass), hidden_size_}).matrix();
  const Tensor d_weights = pass.Floats({pass.rows(), shape_.chosen});
  const auto shared_down = [&] { shared_->BackwardDown(pass, weights.own, gradients.own, activations.shared, d_y); };
  const auto shared_up = [&] { shared_->BackwardUp(pass, gradients.own, x, activations.shared); };
  if (pass.parts != nullptr) {
    const ExpertParallel::Rows sent = RowsToSend(pass, routing, x);
    const ExpertParallel::Beside beside =
        shared_.has_value() ? ExpertParallel::Beside{shared_down, shared_up} : ExpertParallel::Beside();
    RETURN_IF_ERROR(elsewhere_.Backward(pass, weights.experts_unit, &sent, d_y, *routing.traffic, by_slot,
                                        d_weights.f32(), beside));
  } else {
    BackwardHere(pass, weights.experts, gradients.experts, x, activations, d_y, by_slot, d_weights.f32());
    if (shared_.has_value()) {
      shared_down();
      shared_up();
    }
  }
  const Tensor rest = RestBackward(pass, weights, gradients, x, activations, d_weights);
  pass.ops->CombineRows(d_x, by_slot, rest.matrix(), Rows(pass, routing));
  return absl::OkStatus();
}

absl::Status Experts::ServeForward(const Pass& pass, int unit, ExpertTraffic* traffic) const {
  return elsewhere_.Forward(pass, unit, nullptr, {}, traffic, {});
}

absl::Status Experts::ServeBackward(const Pass& pass, int unit, const ExpertTraffic& traffic) const {
  return elsewhere_.Backward(pass, unit, nullptr, {}, traffic, {}, nullptr, {});
}

kernels::RouterReportArgs Experts::ReportOf(const Pass& pass, const Routing& routing) const {
  kernels::RouterReportArgs report{
      .logits = routing.logits.matrix(), .forward = OutOf(routing), .counts = CountsOf(pass)};
  if (balance_pooled_) {
    report.pooled = pass.expert_counts.i32();
    report.pooled_layers = num_layers_;
  }
  if (pass.statistics == nullptr) return report;
  report.balance = pass.layout->At<double>(pass.statistics, 0) + index_;
  report.z = pass.layout->At<double>(pass.statistics, 1) + index_;
  report.entropy = pass.layout->At<double>(pass.statistics, 2) + index_;
  report.load = pass.layout->At<int64_t>(pass.statistics, 3) + index_ * shape_.num_experts;
  report.offsets = routing.offsets.i32();
  if (capacity_ > 0) report.dropped = pass.layout->At<int64_t>(pass.statistics, 4) + index_;
  return report;
}

void Experts::Report(const Pass& pass, const ExpertActivations& activations) const {
  if (pass.statistics != nullptr) pass.ops->RouterReport(ReportOf(pass, activations.routing), shape_);
}

// The gradient of the losses is that of the sum over microbatches of their mean over layers, each weighted by its share
// of what is counted in the step: loss_scale is 1 / (rows of the step), and the trainer multiplies what all have summed
// by (rows of the step) / (counted in the step). Where all rows count that is 1 / microbatches.
void Experts::RouterBackward(const Pass& pass, const Routing& routing, const float* d_weights,
                             kernels::Matrix d_logits) const {
  const ArenaScope scope(*pass.arena);
  const double scale = pass.loss_scale * pass.counted / static_cast<double>(num_layers_);
  const auto experts = static_cast<double>(shape_.num_experts), rows = static_cast<double>(pass.rows());
  kernels::RouterReportArgs report = ReportOf(pass, routing);
  if (balance_loss_ > 0) {
    report.slope = pass.Floats({shape_.num_experts}).f32();
    report.slope_scale = static_cast<float>(balance_loss_ * scale * experts / rows);
  }
  if (report.slope != nullptr || report.load != nullptr) pass.ops->RouterReport(report, shape_);
  pass.ops->RouterBackward({.d_logits = d_logits,
                            .logits = routing.logits.matrix(),
                            .forward = OutOf(routing),
                            .d_weights = d_weights,
                            .slope = report.slope,
                            .z_scale = static_cast<float>(z_loss_ * scale)},
                           shape_);
}

Tensor Experts::RestBackward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                             kernels::ConstMatrix x, const ExpertActivations& activations,
                             const Tensor& d_weights) const {
  const Routing& routing = activations.routing;
  const Tensor sum = pass.Floats({pass.rows(), hidden_size_});
  const kernels::Matrix d_logits = pass.Floats({pass.rows(), shape_.num_experts}).matrix();
  RouterBackward(pass, routing, d_weights.f32(), d_logits);
  if (Wanted(gradients.own[router_])) {
    const ArenaScope scope(*pass.arena);
    pass.ops->Gemm({.a = d_logits,
                    .transpose_a = true,
                    .b = RouterInput(pass, x),
                    .c = gradients.own[router_].matrix(),
                    .pre_gelu = {}});
  }
  if (logit_bias_ >= 0 && Wanted(gradients.own[logit_bias_])) {
    pass.ops->ColumnSum(gradients.own[logit_bias_].f32(), d_logits);
  }
  if (bias_ >= 0 && Wanted(gradients.own[bias_]))
    pass.ops->Zero(gradients.own[bias_].data, gradients.own[bias_].bytes());
  pass.ops->Gemm({.a = d_logits, .b = weights.own[router_].matrix(), .c = sum.matrix(), .pre_gelu = {}});
  if (router_adapter_.has_value()) {
    const ArenaScope scope(*pass.arena);
    const Tensor d_inner = router_adapter_->Backward(pass, weights.own, gradients.own, RouterInput(pass, x), d_logits);
    router_adapter_->AddInputGradient(pass, weights.own, d_inner, sum.matrix());
  }
  if (HasJitter(pass)) pass.ops->Jitter(sum.matrix(), sum.matrix(), jitter_, pass.KeyAt(layer_, RandomSite::kRouter));
  if (shared_.has_value())
    shared_->AddInputGradient(pass, weights.own, gradients.own, x, activations.shared, sum.matrix());
  if (pass.dtype == DType::kF32) return sum;
  const Tensor rounded = pass.Activation(hidden_size_);
  pass.ops->CastToBf16(rounded.bf16(), sum.f32(), sum.shape.elements());
  return rounded;
}

}  // namespace holdfast
