#pragma once
// The feed-forward half of a block as a mixture of experts (Shazeer et al. 2017): a router sends every token to a few
// of many SwiGLU layers and adds up what they give, each weighted by the router. No token is dropped, but in training
// with a capacity (ModelConfig::expert_capacity), which is of a microbatch.
//
// The arithmetic knows no place: an expert's rows are taken in token order, a token's experts by ascending index, the
// weight multiplies the activation before the last projection, the router works in fp32, a shared expert comes last.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/nn/statistics.h"
#include "models/expert_mlp.h"
#include "models/expert_parallel.h"
#include "models/linear.h"
#include "models/shared_expert.h"

namespace holdfast {

/// Where the tokens of a layer go. Recomputation does not route anew, so it is kept beside a block's input.
struct Routing {
  Tensor logits, scores;                   // (R, E) fp32
  Tensor weights;                          // (R, k) fp32
  Tensor lse;                              // (R) fp32
  Tensor experts, choices, slot_of;        // (R, k) int32, see kernels/experts.h
  Tensor offsets;                          // (E + 1) int32
  std::shared_ptr<ExpertTraffic> traffic;  // where experts are computed where they lie
};

struct ExpertActivations {
  Routing routing;
  // Of experts that are computed here, else none.
  Tensor gate_up;  // (S, 2F) by slot
  Tensor act;      // (S, F) weighted
  SharedExpertActivations shared;
};

/// Weights or gradients of the units of one block.
struct BlockTensors {
  UnitTensors own;      // of the block's unit
  UnitTensors experts;  // of its experts' unit; empty in a dense block, and where they are computed where they lie
  int experts_unit = -1;
};

/// Rows of a microbatch of `rows` that an expert takes in training at most; 0 = all.
int64_t ExpertCapacity(const ModelConfig& config, int64_t rows);

/// What a training pass tells of each of L layers with experts: "router_balance", "router_z", "router_entropy" (L),
/// "expert_load" (L, E), the tokens that chose each expert, and with a capacity "dropped_choices" (L). None of a dense
/// model.
StatisticsLayout RouterStatistics(const ModelConfig& config);
/// Of a step's: "balance_loss" and "z_loss" with their factors, as plain means over microbatches (in the gradient each
/// counts by its share of what is learned); and, one for each layer with experts,
/// "expert_load" (the most tokens of an expert over the mean), "dead_experts" (that had none), "router_entropy" (in
/// nats) and with a capacity "dropped_choices" (their share). Empty for a dense model.
std::vector<Figure> RouterFigures(const ModelConfig& config, const Statistics& step);
/// Of RouterFigures, in their order.
std::vector<std::string> RouterFigureNames(const ModelConfig& config);
/// Of what FlopsPerTokenOf (plan.h) counts for a token, the part of experts that dropped choices of a step with these
/// figures.
double DroppedFlopsPerToken(const ModelConfig& config, const std::vector<Figure>& figures);

class Experts {
 public:
  /// `layer` counts from 1. Adds the router and the shared expert to the unit at hand; AddExperts adds the rest.
  Experts(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer);
  /// The experts, one after the other, into a unit of their own; `in_parts`: which is cut at experts.
  void AddExperts(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, bool in_parts) const;

  Routing AllocateRouting(const Pass& pass) const;
  /// Everything but `routing`.
  void Allocate(const Pass& pass, ExpertActivations* activations) const;

  /// Fills activations.routing for x (R, C).
  void Route(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
             const ExpertActivations& activations) const;
  void ForwardUp(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
                 const ExpertActivations& activations) const;
  /// y (R, C) from `activations`. Apart from ForwardUp because recomputation does not need it. Where experts are
  /// computed where they lie, from x, all of ForwardUp included: the shared expert is computed while rows travel.
  absl::Status ForwardDown(const Pass& pass, const BlockTensors& weights, kernels::ConstMatrix x,
                           const ExpertActivations& activations, kernels::Matrix y) const;

  /// d_x (R, C) for d_y (R, C). d_x may be the memory of x. Overwrites gate_up and act.
  absl::Status Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                        kernels::ConstMatrix x, const ExpertActivations& activations, kernels::ConstMatrix d_y,
                        kernels::Matrix d_x) const;

  /// Writes the statistics of a training pass, as Backward does: in its place where nothing below is trained.
  void Report(const Pass& pass, const ExpertActivations& activations) const;

  /// What a rank without a microbatch does in the others' ForwardDown and Backward.
  absl::Status ServeForward(const Pass& pass, int unit, ExpertTraffic* traffic) const;
  absl::Status ServeBackward(const Pass& pass, int unit, const ExpertTraffic& traffic) const;

 private:
  /// With the bias of the unit at hand and the capacity of the pass.
  kernels::RouterShape ShapeOf(const Pass& pass, const BlockTensors& weights) const;
  int32_t* CountsOf(const Pass& pass) const { return Advance(pass.expert_counts.i32(), index_ * shape_.num_experts); }
  int64_t slots(const Pass& pass) const { return pass.rows() * shape_.chosen; }
  bool HasJitter(const Pass& pass) const { return pass.training && jitter_ > 0; }
  /// What the router sees of x (R, C); with jitter in memory of the arena.
  kernels::ConstMatrix RouterInput(const Pass& pass, kernels::ConstMatrix x) const;
  /// What the router says of its choices, in the pass's statistics if it has some.
  kernels::RouterReportArgs ReportOf(const Pass& pass, const Routing& routing) const;
  /// Of the router, with the losses of its own.
  void RouterBackward(const Pass& pass, const Routing& routing, const float* d_weights, kernels::Matrix d_logits) const;
  /// What router and shared expert, whose own backward pass is done, add to the gradient of x, in the dtype of
  /// activations.
  Tensor RestBackward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                      kernels::ConstMatrix x, const ExpertActivations& activations, const Tensor& d_weights) const;
  /// Of the experts whose weights were acquired: d_x (S, C) by slot and d_weights (R, k).
  void BackwardHere(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                    const ExpertActivations& activations, kernels::ConstMatrix d_y, kernels::Matrix d_x,
                    float* d_weights) const;
  kernels::ExpertRows Rows(const Pass& pass, const Routing& routing) const;
  ExpertSlots SlotsOf(const Pass& pass, const ExpertActivations& activations) const;
  ExpertParallel::Rows RowsToSend(const Pass& pass, const Routing& routing, kernels::ConstMatrix x) const;

  kernels::RouterShape shape_;
  int64_t hidden_size_, width_, layer_;
  int64_t index_, num_layers_;    // among the layers with experts, and how many there are
  double balance_loss_, z_loss_;  // coefficients
  bool balance_pooled_;
  double capacity_;
  float jitter_;
  int router_, logit_bias_ = -1, bias_ = -1;  // in the block's unit; bias_: of scores, for choosing only
  std::optional<Adapter> router_adapter_;
  ExpertMlp mlp_;
  ExpertParallel elsewhere_;
  std::optional<SharedExpert> shared_;
};

}  // namespace holdfast
