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

Block::Block(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
             const float* rope)
    : layer_(layer),
      norms_after_(config.norm_position == NormPosition::kAfter),
      norm1_(builder, name + ".norm1", config),
      attention_(builder, name + ".attention", config, layer, rope),
      norm2_(builder, name + ".norm2", config) {
  if (config.HasExperts(layer)) {
    experts_.emplace(builder, name + ".experts", config, layer);
  } else {
    mlp_.emplace(builder, name + ".mlp", config);
  }
}

void Block::AllocateKept(const Pass& pass, BlockActivations* activations) const {
  if (experts_.has_value()) activations->experts.routing = experts_->AllocateRouting(pass);
  if (norms_after_) AllocateNorm2(pass, activations);
}

void Block::AllocateNorm2(const Pass& pass, BlockActivations* activations) const {
  activations->norm2 = norm2_.Allocate(pass, pass.rows());
  activations->inner2 = pass.Activation(activations->input.shape.cols());
}

void Block::AllocateInner(const Pass& pass, BlockActivations* activations) const {
  activations->norm1 = norm1_.Allocate(pass, pass.rows());
  activations->inner1 = pass.Activation(activations->input.shape.cols());
  activations->attention = attention_.Allocate(pass);
  if (!norms_after_) AllocateNorm2(pass, activations);
  if (experts_.has_value()) {
    experts_->Allocate(pass, &activations->experts);
  } else {
    activations->mlp = mlp_->Allocate(pass);
  }
}

void Block::ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                         const BlockActivations& a, const Tensor& branch, bool route) const {
  if (norms_after_) {
    AddUp(pass, in, a.input);
    attention_.Forward(pass, weights.own, a.input.matrix(), a.attention, a.inner1.matrix());
    norm1_.Forward(pass, weights.own, a.inner1.matrix(), a.norm1, branch.matrix());
  } else {
    norm1_.Forward(pass, weights.own, in, a.norm1, a.input.matrix(), a.inner1.matrix());
    attention_.Forward(pass, weights.own, a.inner1.matrix(), a.attention, branch.matrix());
  }
  const ResidualStream middle{.residual = a.input.matrix(),
                              .has_branch = true,
                              .branch = branch.matrix(),
                              .dropout = pass.DropoutAt(layer_, RandomSite::kAttentionBranch)};
  if (norms_after_) {
    AddUp(pass, middle, a.middle);
  } else {
    norm2_.Forward(pass, weights.own, middle, a.norm2, a.middle.matrix(), a.inner2.matrix());
  }
  const kernels::ConstMatrix x = MlpInput(a).matrix();
  if (!experts_.has_value()) return mlp_->ForwardUp(pass, weights.own, x, a.mlp);
  if (route) experts_->Route(pass, weights, x, a.experts);
  if (route && pass.parts != nullptr) return;  // ForwardDown does it
  experts_->ForwardUp(pass, weights, x, a.experts);
}

absl::StatusOr<ResidualStream> Block::Forward(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                                              const BlockActivations& activations, const Tensor& branch) const {
  ForwardInner(pass, weights, in, activations, branch, /*route=*/true);
  const kernels::Matrix y = norms_after_ ? activations.inner2.matrix() : branch.matrix();
  if (experts_.has_value()) {
    RETURN_IF_ERROR(experts_->ForwardDown(pass, weights, MlpInput(activations).matrix(), activations.experts, y));
  } else {
    mlp_->ForwardDown(pass, weights.own, activations.mlp, y);
  }
  if (norms_after_) norm2_.Forward(pass, weights.own, y, activations.norm2, branch.matrix());
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
  const int64_t hidden_size = gradient.shape.cols();
  kernels::ConstMatrix d_y = d_stream;
  if (half.dropout.rate > 0) {
    const kernels::Matrix dropped = pass.Activation(hidden_size).matrix();
    pass.ops->ApplyDropout(dropped, d_stream, half.dropout);
    d_y = dropped;
  }
  if (norms_after_) {
    const kernels::Matrix d_inner = pass.Activation(hidden_size).matrix();
    half.norm.Backward(pass, weights.own, gradients.own, half.inner.matrix(), half.activations, d_y, {}, d_inner);
    d_y = d_inner;
  }
  const kernels::Matrix x = norms_after_ ? half.stream.matrix() : half.inner.matrix(), d_x = x;
  RETURN_IF_ERROR(module(x, d_y));
  if (norms_after_) {
    pass.ops->AddDropout(d_stream, d_x, {});
  } else {
    half.norm.Backward(pass, weights.own, gradients.own, half.stream.matrix(), half.activations, d_x, d_stream,
                       d_stream);
  }
  return absl::OkStatus();
}

absl::Status Block::Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                             const BlockActivations& a, const Tensor& gradient) const {
  const Half second{norm2_, a.norm2, a.middle, a.inner2, pass.DropoutAt(layer_, RandomSite::kMlpBranch)};
  RETURN_IF_ERROR(BackwardHalf(pass, weights, gradients, second, gradient,
                               [&](kernels::Matrix x, kernels::ConstMatrix d_y) -> absl::Status {
                                 if (experts_.has_value())
                                   return experts_->Backward(pass, weights, gradients, x, a.experts, d_y, x);
                                 mlp_->Backward(pass, weights.own, gradients.own, x, a.mlp, d_y, x);
                                 return absl::OkStatus();
                               }));
  const Half first{norm1_, a.norm1, a.input, a.inner1, pass.DropoutAt(layer_, RandomSite::kAttentionBranch)};
  return BackwardHalf(pass, weights, gradients, first, gradient, [&](kernels::Matrix x, kernels::ConstMatrix d_y) {
    attention_.Backward(pass, weights.own, gradients.own, x, a.attention, d_y, x);
    return absl::OkStatus();
  });
}

}  // namespace holdfast
