#include "models/block.h"

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
      norm2_(builder, name + ".norm2", config),
      mlp_(builder, name + ".mlp", config) {}

void Block::AllocateInner(const Pass& pass, BlockActivations* activations) const {
  const int64_t hidden_size = activations->input.shape.cols();
  activations->norm1 = norm1_.Allocate(pass, pass.rows());
  activations->norm1_out = pass.Activation(hidden_size);
  activations->attention = attention_.Allocate(pass);
  activations->norm2 = norm2_.Allocate(pass, pass.rows());
  activations->norm2_out = pass.Activation(hidden_size);
  activations->mlp = mlp_.Allocate(pass);
}

void Block::ForwardInner(const Pass& pass, UnitTensors weights, const ResidualStream& in, const BlockActivations& a,
                         const Tensor& branch) const {
  norm1_.Forward(pass, weights, in, a.norm1, a.input.matrix(), a.norm1_out.matrix());
  attention_.Forward(pass, weights, a.norm1_out.matrix(), a.attention, branch.matrix());
  const ResidualStream middle{.residual = a.input.matrix(),
                              .has_branch = true,
                              .branch = branch.matrix(),
                              .dropout = pass.DropoutAt(layer_, DropoutSite::kAttentionBranch)};
  norm2_.Forward(pass, weights, middle, a.norm2, a.middle.matrix(), a.norm2_out.matrix());
  mlp_.ForwardUp(pass, weights, a.norm2_out.matrix(), a.mlp);
}

ResidualStream Block::Forward(const Pass& pass, UnitTensors weights, const ResidualStream& in,
                              const BlockActivations& activations, const Tensor& branch) const {
  ForwardInner(pass, weights, in, activations, branch);
  mlp_.ForwardDown(pass, weights, activations.mlp, branch.matrix());
  return {.residual = activations.middle.matrix(),
          .has_branch = true,
          .branch = branch.matrix(),
          .dropout = pass.DropoutAt(layer_, DropoutSite::kMlpBranch)};
}

void Block::Recompute(const Pass& pass, UnitTensors weights, const BlockActivations& activations,
                      const Tensor& branch) const {
  const ResidualStream in{.residual = activations.input.matrix(), .branch = {}, .dropout = {}};
  ForwardInner(pass, weights, in, activations, branch);
}

void Block::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const BlockActivations& a,
                     const Tensor& gradient) const {
  {
    ArenaScope scope(*pass.arena);
    const kernels::Dropout dropout = pass.DropoutAt(layer_, DropoutSite::kMlpBranch);
    const kernels::Matrix d_norm2 = a.norm2_out.matrix();  // in the memory of the activation it ends
    mlp_.Backward(pass, weights, gradients, a.norm2_out.matrix(), a.mlp, BranchGradient(pass, gradient, dropout),
                  d_norm2);
    norm2_.Backward(pass, weights, gradients, a.middle.matrix(), a.norm2, d_norm2, gradient.matrix(),
                    gradient.matrix());
  }
  ArenaScope scope(*pass.arena);
  const kernels::Dropout dropout = pass.DropoutAt(layer_, DropoutSite::kAttentionBranch);
  const kernels::Matrix d_norm1 = a.norm1_out.matrix();
  attention_.Backward(pass, weights, gradients, a.norm1_out.matrix(), a.attention,
                      BranchGradient(pass, gradient, dropout), d_norm1);
  norm1_.Backward(pass, weights, gradients, a.input.matrix(), a.norm1, d_norm1, gradient.matrix(), gradient.matrix());
}

}  // namespace holdfast
