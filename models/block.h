#pragma once
// One pre-norm block: x + attention(norm1(x)), then + mlp(norm2(.)). The additions happen in the norm that reads the
// sum: norm2 for the attention branch, the next module's norm for the MLP branch. The MLP may be a mixture of experts.

#include <optional>
#include <string>

#include "models/attention.h"
#include "models/experts.h"
#include "models/mlp.h"
#include "models/norm.h"

namespace holdfast {

struct BlockActivations {
  Tensor input;  // (R, C) value of the residual stream on entry: all that recomputation needs
  NormActivations norm1;
  Tensor norm1_out;  // (R, C)
  AttentionActivations attention;
  Tensor middle;  // (R, C) input + dropout(attention branch)
  NormActivations norm2;
  Tensor norm2_out;           // (R, C)
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

  /// activations->experts.routing, which recomputation keeps.
  void AllocateRouting(const Pass& pass, BlockActivations* activations) const;
  /// Everything but that, `input` and `middle`, which the caller allocates (they may be one memory if no backward
  /// follows).
  void AllocateInner(const Pass& pass, BlockActivations* activations) const;

  /// Adds the stream's branch to its residual and leaves the new stream: residual = activations.middle, its branch in
  /// the memory `branch` (which may be the memory of in.branch).
  absl::StatusOr<ResidualStream> Forward(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                                         const BlockActivations& activations, const Tensor& branch) const;

  /// Fills `activations` again from activations.input: the same calls on the same bits. `branch` (R, C) is scratch.
  void Recompute(const Pass& pass, const BlockTensors& weights, const BlockActivations& activations,
                 const Tensor& branch) const;

  /// `gradient` (R, C) holds the gradient of the stream's value after this block (both residual and branch) and
  /// receives that of activations.input. Overwrites `activations`.
  absl::Status Backward(const Pass& pass, const BlockTensors& weights, const BlockTensors& gradients,
                        const BlockActivations& activations, const Tensor& gradient) const;

 private:
  void ForwardInner(const Pass& pass, const BlockTensors& weights, const ResidualStream& in,
                    const BlockActivations& activations, const Tensor& branch, bool route) const;

  int64_t layer_;
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  std::optional<Mlp> mlp_;
  std::optional<Experts> experts_;  // instead
};

}  // namespace holdfast
