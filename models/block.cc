#include "models/block.h"

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// sum (R, C) = value of the stream. If that has no branch, `sum` has the value already. `sum` may be the memory of the
/// stream's residual.
void AddUp(const Pass& pass, const ResidualStream& in, const Tensor& sum) {
  if (!in.has_branch) return;
  if (sum.data != in.residual.data) pass.ops->Copy(sum.data, in.residual.data, sum.bytes());
  pass.ops->AddDropout(sum.matrix(), in.branch, in.dropout);
}

}  // namespace

BranchNorms::BranchNorms(ParameterBuilder& builder, const std::string& name, const ModelConfig& config) {
  const bool both = config.norm_position == NormPosition::kBoth;
  if (config.norm_position != NormPosition::kAfter) before_.emplace(builder, name, config);
  if (config.norm_position != NormPosition::kBefore) after_.emplace(builder, both ? name + "_after" : name, config);
}

void BranchNorms::AllocateBefore(const Pass& pass, int64_t hidden_size, BranchActivations* activations) const {
  if (!before_.has_value()) return;
  activations->before = before_->Allocate(pass, pass.rows());
  activations->x = pass.Activation(hidden_size);
}

void BranchNorms::AllocateAfter(const Pass& pass, int64_t hidden_size, BranchActivations* activations) const {
  if (!after_.has_value()) return;
  activations->after = after_->Allocate(pass, pass.rows());
  activations->y = pass.Activation(hidden_size);
}

void BranchNorms::Begin(const Pass& pass, UnitTensors weights, const ResidualStream& in, const BranchActivations& a,
                        const Tensor& sum) const {
  if (!before_.has_value()) return AddUp(pass, in, sum);
  before_->Forward(pass, weights, in, a.before, sum.matrix(), a.x.matrix());
}

void BranchNorms::End(const Pass& pass, UnitTensors weights, const BranchActivations& a, const Tensor& branch) const {
  if (after_.has_value()) after_->Forward(pass, weights, a.y.matrix(), a.after, branch.matrix());
}

kernels::ConstMatrix BranchNorms::BackwardEnd(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                                              const BranchActivations& a, kernels::ConstMatrix d_branch) const {
  if (!after_.has_value()) return d_branch;
  const kernels::Matrix d_y = pass.Activation(d_branch.cols).matrix();
  after_->Backward(pass, weights, gradients, a.y.matrix(), a.after, d_branch, {}, d_y);
  return d_y;
}

void BranchNorms::BackwardBegin(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                                const BranchActivations& a, const Tensor& stream, kernels::ConstMatrix d_x,
                                kernels::Matrix d_stream) const {
  if (!before_.has_value()) return pass.ops->AddDropout(d_stream, d_x, {});
  before_->Backward(pass, weights, gradients, stream.matrix(), a.before, d_x, d_stream, d_stream);
}

Block::Block(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
             const float* rope)
    : layer_(layer),
      norms1_(builder, name + ".norm1", config),
      attention_(builder, name + ".attention", config, layer, rope),
      norms2_(builder, name + ".norm2", config) {
  if (config.HasExperts(layer)) {
    experts_.emplace(builder, name + ".experts", config, layer);
  } else {
    mlp_.emplace(builder, name + ".mlp", config);
  }
}

void Block::AllocateKept(const Pass& pass, BlockActivations* activations) const {
  if (experts_.has_value()) activations->experts.routing = experts_->AllocateRouting(pass);
  norms2_.AllocateAfter(pass, activations->input.shape.cols(), &activations->second);
}

void Block::AllocateInner(const Pass& pass, BlockActivations* activations) const {
  const int64_t hidden_size = activations->input.shape.cols();
  norms1_.AllocateBefore(pass, hidden_size, &activations->first);
  norms1_.AllocateAfter(pass, hidden_size, &activations->first);
  activations->attention = attention_.Allocate(pass);
  norms2_.AllocateBefore(pass, hidden_size, &activations->second);
  if (experts_.has_value()) {
    experts_->Allocate(pass, &activations->experts);
  } else {
    activations->mlp = mlp_->Allocate(pass);
  }
}

void Block::ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                         const BlockActivations& a, const Tensor& branch, bool route) const {
  norms1_.Begin(pass, weights.own, in, a.first, a.input);
  attention_.Forward(pass, weights.own, norms1_.Input(a.first, a.input).matrix(), a.attention,
                     norms1_.Output(a.first, branch).matrix());
  norms1_.End(pass, weights.own, a.first, branch);
  const ResidualStream middle{.residual = a.input.matrix(),
                              .has_branch = true,
                              .branch = branch.matrix(),
                              .dropout = pass.DropoutAt(layer_, RandomSite::kAttentionBranch)};
  norms2_.Begin(pass, weights.own, middle, a.second, a.middle);
  const kernels::ConstMatrix x = MlpInput(a).matrix();
  if (!experts_.has_value()) return mlp_->ForwardUp(pass, weights.own, x, a.mlp);
  if (route) experts_->Route(pass, weights, x, a.experts);
  if (route && pass.parts != nullptr) return;  // ForwardDown does it
  experts_->ForwardUp(pass, weights, x, a.experts);
}

absl::StatusOr<ResidualStream> Block::Forward(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                                              const BlockActivations& activations, const Tensor& branch) const {
  ForwardInner(pass, weights, in, activations, branch, /*route=*/true);
  const kernels::Matrix y = norms2_.Output(activations.second, branch).matrix();
  if (experts_.has_value()) {
    RETURN_IF_ERROR(experts_->ForwardDown(pass, weights, MlpInput(activations).matrix(), activations.experts, y));
  } else {
    mlp_->ForwardDown(pass, weights.own, activations.mlp, y);
  }
  norms2_.End(pass, weights.own, activations.second, branch);
  return ResidualStream{.residual = activations.middle.matrix(),
                        .has_branch = true,
                        .branch = branch.matrix(),
                        .dropout = pass.DropoutAt(layer_, RandomSite::kMlpBranch)};
}

void Block::Recompute(const Pass& pass, const BlockTensors& weights, const BlockActivations& activations,
                      const Tensor& branch) const {
  const ResidualStream in{.residual = activations.input.matrix(), .branch = {}, .dropout = {}};
  ForwardInner(pass, weights, in, activations, branch, /*route=*/false);
}

absl::Status Block::BackwardHalf(
    const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients, const Half& half,
    const Tensor& gradient, absl::FunctionRef<absl::Status(kernels::Matrix x, kernels::ConstMatrix d_y)> module) const {
  const ArenaScope scope(*pass.arena);
  const kernels::Matrix d_stream = gradient.matrix();
  kernels::ConstMatrix d_branch = d_stream;
  if (half.dropout.rate > 0) {
    const kernels::Matrix dropped = pass.Activation(gradient.shape.cols()).matrix();
    pass.ops->ApplyDropout(dropped, d_stream, half.dropout);
    d_branch = dropped;
  }
  const kernels::ConstMatrix d_y = half.norms.BackwardEnd(pass, weights.own, gradients.own, half.activations, d_branch);
  const kernels::Matrix x = half.norms.Input(half.activations, half.stream).matrix(), d_x = x;
  RETURN_IF_ERROR(module(x, d_y));
  half.norms.BackwardBegin(pass, weights.own, gradients.own, half.activations, half.stream, d_x, d_stream);
  return absl::OkStatus();
}

absl::Status Block::Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                             const BlockActivations& a, const Tensor& gradient) const {
  const Half second{norms2_, a.second, a.middle, pass.DropoutAt(layer_, RandomSite::kMlpBranch)};
  RETURN_IF_ERROR(BackwardHalf(pass, weights, gradients, second, gradient,
                               [&](kernels::Matrix x, kernels::ConstMatrix d_y) -> absl::Status {
                                 if (experts_.has_value())
                                   return experts_->Backward(pass, weights, gradients, x, a.experts, d_y, x);
                                 mlp_->Backward(pass, weights.own, gradients.own, x, a.mlp, d_y, x);
                                 return absl::OkStatus();
                               }));
  const Half first{norms1_, a.first, a.input, pass.DropoutAt(layer_, RandomSite::kAttentionBranch)};
  return BackwardHalf(pass, weights, gradients, first, gradient, [&](kernels::Matrix x, kernels::ConstMatrix d_y) {
    attention_.Backward(pass, weights.own, gradients.own, x, a.attention, d_y, x);
    return absl::OkStatus();
  });
}

}  // namespace holdfast
