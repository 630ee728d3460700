#pragma once
// One block: x + attention(norm1(x)), then + mlp(norm2(.)), or with norm_position after: x + norm1(attention(x)), then
// + norm2(mlp(.)). A norm that reads a sum adds it up: norm2 for the attention branch, the next module's norm for the
// MLP branch. Where no norm does, the block itself adds. The MLP may be a mixture of experts.

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "models/attention.h"
#include "models/experts.h"
#include "models/mlp.h"
#include "models/norm.h"

namespace holdfast {

struct BlockActivations {
  Tensor input;  // (R, C) value of the residual stream on entry
  NormActivations norm1;
  Tensor inner1;  // (R, C) between norm1 and attention: what the first of them gives the second
  AttentionActivations attention;
  Tensor middle;  // (R, C) input + dropout(attention branch)
  NormActivations norm2;
  Tensor inner2;              // (R, C) likewise between norm2 and MLP
  MlpActivations mlp;         // of a dense block
  ExpertActivations experts;  // or of one with experts
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

  /// What recomputation keeps besides `input`: experts.routing, and with norm_position after norm2 and inner2, or the
  /// last projection would be repeated.
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
  void AllocateNorm2(const Pass& pass, BlockActivations* activations) const;
  void ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                    const BlockActivations& activations, const Tensor& branch, bool route) const;
  /// What the MLP is given.
  const Tensor& MlpInput(const BlockActivations& a) const { return norms_after_ ? a.middle : a.inner2; }
  /// A norm and the module, attention or the MLP, that it stands before or after.
  struct Half {
    const Norm& norm;
    const NormActivations& activations;
    const Tensor& stream;  // (R, C) its value before this half
    const Tensor& inner;   // (R, C) between norm and module
    kernels::Dropout dropout;
  };
  /// `gradient` (R, C) holds that of the stream after `half` and receives that of the stream before it.
  /// module(x, d_y): the module's backward pass, with the gradient of its input x (R, C) in the memory of x.
  absl::Status BackwardHalf(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                            const Half& half, const Tensor& gradient,
                            absl::FunctionRef<absl::Status(kernels::Matrix x, kernels::ConstMatrix d_y)> module) const;

  int64_t layer_;
  bool norms_after_;
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  std::optional<Mlp> mlp_;
  std::optional<Experts> experts_;  // instead
};

}  // namespace holdfast
