#include "models/block.h"

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Gradient of a branch that entered the stream through `dropout`; without dropout it is the stream's own. May
/// allocate, so the caller holds an ArenaScope.
kernels::ConstMatrix BranchGradient(const Pass& pass, const Tensor& gradient, const kernels::Dropout& dropout) {
  if (dropout.rate == 0) return gradient.matrix();
  const kernels::Matrix dropped = pass.Activation(gradient.shape.cols()).matrix();
  pass.ops->ApplyDropout(dropped, gradient.matrix(), dropout);
  return dropped;
}

}  // namespace

Block::Block(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
             const float* rope)
    : layer_(layer),
      norm1_(builder, name + ".norm1", config),
      attention_(builder, name + ".attention", config, layer, rope),
      norm2_(builder, name + ".norm2", config) {
  if (config.HasExperts(layer)) {
    experts_.emplace(builder, name + ".experts", config, layer);
  } else {
    mlp_.emplace(builder, name + ".mlp", config);
  }
}

void Block::AllocateRouting(const Pass& pass, BlockActivations* activations) const {
  if (experts_.has_value()) activations->experts.routing = experts_->AllocateRouting(pass);
}

void Block::AllocateInner(const Pass& pass, BlockActivations* activations) const {
  const int64_t hidden_size = activations->input.shape.cols();
  activations->norm1 = norm1_.Allocate(pass, pass.rows());
  activations->norm1_out = pass.Activation(hidden_size);
  activations->attention = attention_.Allocate(pass);
  activations->norm2 = norm2_.Allocate(pass, pass.rows());
  activations->norm2_out = pass.Activation(hidden_size);
  if (experts_.has_value()) {
    experts_->Allocate(pass, &activations->experts);
  } else {
    activations->mlp = mlp_->Allocate(pass);
  }
}

void Block::ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                         const BlockActivations& a, const Tensor& branch, bool route) const {
  norm1_.Forward(pass, weights.own, in, a.norm1, a.input.matrix(), a.norm1_out.matrix());
  attention_.Forward(pass, weights.own, a.norm1_out.matrix(), a.attention, branch.matrix());
  const ResidualStream middle{.residual = a.input.matrix(),
                              .has_branch = true,
                              .branch = branch.matrix(),
                              .dropout = pass.DropoutAt(layer_, RandomSite::kAttentionBranch)};
  norm2_.Forward(pass, weights.own, middle, a.norm2, a.middle.matrix(), a.norm2_out.matrix());
  if (!experts_.has_value()) return mlp_->ForwardUp(pass, weights.own, a.norm2_out.matrix(), a.mlp);
  if (route) experts_->Route(pass, weights, a.norm2_out.matrix(), a.experts);
  if (route && pass.parts != nullptr) return;  // ForwardDown does it
  experts_->ForwardUp(pass, weights, a.norm2_out.matrix(), a.experts);
}

absl::StatusOr<ResidualStream> Block::Forward(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                                              const BlockActivations& activations, const Tensor& branch) const {
  ForwardInner(pass, weights, in, activations, branch, /*route=*/true);
  if (experts_.has_value()) {
    RETURN_IF_ERROR(
        experts_->ForwardDown(pass, weights, activations.norm2_out.matrix(), activations.experts, branch.matrix()));
  } else {
    mlp_->ForwardDown(pass, weights.own, activations.mlp, branch.matrix());
  }
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

absl::Status Block::Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                             const BlockActivations& a, const Tensor& gradient) const {
  {
    ArenaScope scope(*pass.arena);
    const kernels::Dropout dropout = pass.DropoutAt(layer_, RandomSite::kMlpBranch);
    const kernels::Matrix d_norm2 = a.norm2_out.matrix();  // in the memory of the activation it ends
    const kernels::ConstMatrix d_branch = BranchGradient(pass, gradient, dropout);
    if (experts_.has_value()) {
      RETURN_IF_ERROR(experts_->Backward(pass, weights, gradients, a.norm2_out.matrix(), a.experts, d_branch, d_norm2));
    } else {
      mlp_->Backward(pass, weights.own, gradients.own, a.norm2_out.matrix(), a.mlp, d_branch, d_norm2);
    }
    norm2_.Backward(pass, weights.own, gradients.own, a.middle.matrix(), a.norm2, d_norm2, gradient.matrix(),
                    gradient.matrix());
  }
  ArenaScope scope(*pass.arena);
  const kernels::Dropout dropout = pass.DropoutAt(layer_, RandomSite::kAttentionBranch);
  const kernels::Matrix d_norm1 = a.norm1_out.matrix();
  attention_.Backward(pass, weights.own, gradients.own, a.norm1_out.matrix(), a.attention,
                      BranchGradient(pass, gradient, dropout), d_norm1);
  norm1_.Backward(pass, weights.own, gradients.own, a.input.matrix(), a.norm1, d_norm1, gradient.matrix(),
                  gradient.matrix());
  return absl::OkStatus();
}

}  // namespace holdfast
