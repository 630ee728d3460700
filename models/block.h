#pragma once
// One block: x + attention(norm1(x)), then + mlp(norm2(.)), or with norm_position after: x + norm1(attention(x)), then
// + norm2(mlp(.)), or with both: x + norm1_after(attention(norm1(x))), then likewise. A norm that reads a sum adds it
// up: norm2 for the attention branch, the next module's norm for the MLP branch. Where no norm does, the block itself
// adds. The MLP may be a mixture of experts.

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "models/attention.h"
#include "models/experts.h"
#include "models/mlp.h"
#include "models/norm.h"

namespace holdfast {

/// Of the norms of a branch.
struct BranchActivations {
  NormActivations before;
  Tensor x;  // (R, C) what the norm before the module gives it; none without
  NormActivations after;
  Tensor y;  // (R, C) what the module gives the norm after it; none without
};

struct BlockActivations {
  Tensor input;  // (R, C) value of the residual stream on entry
  BranchActivations first;
  AttentionActivations attention;
  Tensor middle;  // (R, C) input + dropout(attention branch)
  BranchActivations second;
  MlpActivations mlp;         // of a dense block
  ExpertActivations experts;  // or of one with experts
};

/// The norms of a branch: before its module, which is attention or the MLP, after it, or both.
class BranchNorms {
 public:
  BranchNorms(ParameterBuilder& builder, const std::string& name, const ModelConfig& config);

  void AllocateBefore(const Pass& pass, int64_t hidden_size, BranchActivations* activations) const;
  void AllocateAfter(const Pass& pass, int64_t hidden_size, BranchActivations* activations) const;

  /// What the module reads (R, C), and what it writes (R, C).
  const Tensor& Input(const BranchActivations& a, const Tensor& stream) const { return before_ ? a.x : stream; }
  const Tensor& Output(const BranchActivations& a, const Tensor& branch) const { return after_ ? a.y : branch; }

  /// Adds up the stream in `sum` (R, C), which may be the memory of its residual, and fills Input.
  void Begin(const Pass& pass, UnitTensors weights, const ResidualStream& in, const BranchActivations& a,
             const Tensor& sum) const;
  /// Makes of Output what `branch` (R, C) then holds.
  void End(const Pass& pass, UnitTensors weights, const BranchActivations& a, const Tensor& branch) const;

  /// The gradient (R, C) of Output for that of the branch, which may be it. May allocate, so the caller holds an
  /// ArenaScope.
  kernels::ConstMatrix BackwardEnd(const Pass& pass, UnitTensors weights, UnitTensors gradients,
                                   const BranchActivations& a, kernels::ConstMatrix d_branch) const;
  /// Adds what comes of the gradient (R, C) of Input to that of the stream (R, C).
  void BackwardBegin(const Pass& pass, UnitTensors weights, UnitTensors gradients, const BranchActivations& a,
                     const Tensor& stream, kernels::ConstMatrix d_x, kernels::Matrix d_stream) const;

 private:
  std::optional<Norm> before_, after_;
};

class Block {
 public:
  /// `layer` counts from 1 (0 is the embedding).
  Block(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, int64_t layer,
        const float* rope);

  bool has_experts() const { return experts_.has_value(); }
  /// Describes the experts to the builder, whose unit is theirs.
  void AddExperts(ParameterBuilder& builder, const std::string& name, const ModelConfig& config, bool in_parts) const {
    experts_->AddExperts(builder, name, config, in_parts);
  }
  const Experts& experts() const { return *experts_; }

  /// What recomputation keeps besides `input`: experts.routing, and of a norm at the end second.after and second.y, or
  /// the last projection would be repeated.
  void AllocateKept(const Pass& pass, BlockActivations* activations) const;
  /// Everything but that, `input` and `middle`, which the caller allocates (they may be one memory if no backward
  /// follows).
  void AllocateInner(const Pass& pass, BlockActivations* activations) const;

  /// Adds the stream's branch to its residual and leaves the new stream: residual = activations.middle, its branch in
  /// the memory `branch` (which may be the memory of in.branch).
  absl::StatusOr<ResidualStream> Forward(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                                         const BlockActivations& activations, const Tensor& branch) const;

  /// Fills `activations` again from what was kept: the same calls on the same bits. `branch` (R, C) is scratch.
  void Recompute(const Pass& pass, const BlockTensors& weights, const BlockActivations& activations,
                 const Tensor& branch) const;

  /// `gradient` (R, C) holds the gradient of the stream's value after this block (both residual and branch) and
  /// receives that of activations.input. Overwrites `activations`.
  absl::Status Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                        const BlockActivations& activations, const Tensor& gradient) const;

 private:
  void ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                    const BlockActivations& activations, const Tensor& branch, bool route) const;
  /// What the MLP is given.
  const Tensor& MlpInput(const BlockActivations& a) const { return norms2_.Input(a.second, a.middle); }
  /// A branch: a module, attention or the MLP, and its norms.
  struct Half {
    const BranchNorms& norms;
    const BranchActivations& activations;
    const Tensor& stream;  // (R, C) its value before this half
    kernels::Dropout dropout;
  };
  /// `gradient` (R, C) holds that of the stream after `half` and receives that of the stream before it.
  /// module(x, d_y): the module's backward pass, with the gradient of its input x (R, C) in the memory of x.
  absl::Status BackwardHalf(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                            const Half& half, const Tensor& gradient,
                            absl::FunctionRef<absl::Status(kernels::Matrix x, kernels::ConstMatrix d_y)> module) const;

  int64_t layer_;
  BranchNorms norms1_;
  Attention attention_;
  BranchNorms norms2_;
  std::optional<Mlp> mlp_;
  std::optional<Experts> experts_;  // instead
};

}  // namespace holdfast
