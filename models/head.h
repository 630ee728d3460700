#pragma once
// Final norm, output projection and cross-entropy. Logits exist for a fixed number of rows at a time, never for all.

#include "framework/config/config.h"
#include "models/language_model.h"
#include "models/norm.h"

namespace holdfast {

class Head {
 public:
  /// `rows` of logits are held at once, which is part of the result's bits: it is the order of the weight gradient's
  /// sum.
  Head(ParameterBuilder& builder, const ModelConfig& config, int64_t rows);

  /// Whether the projection is a parameter of this unit; otherwise it is the token table.
  bool owns_projection() const { return projection_ >= 0; }
  const Tensor& Projection(UnitTensors tensors) const { return tensors[projection_]; }

  /// losses (R) of the stream's value; its residual is overwritten with it. see(logits): of all rows, block by block.
  absl::Status Losses(const Pass& pass, UnitTensors weights, const Tensor& projection, const ResidualStream& in,
                      const int32_t* targets, float* losses, LanguageModel::SeeLogits see) const;

  /// Losses and gradients: `gradients` of the norm and d_projection (V, C) are overwritten, `gradient` (R, C) receives
  /// the gradient of the stream's value and may be the memory of in.branch. `sum` (R, C) receives the stream's value.
  void LossesAndGradients(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Tensor& projection,
                          const Tensor& d_projection, const ResidualStream& in, const Tensor& sum,
                          const int32_t* targets, float loss_scale, float* losses, const Tensor& gradient) const;

  /// logits (B, V) fp32 of the last row of each sequence. Overwrites these rows of the stream's residual.
  void LastLogits(const Pass& pass, UnitTensors weights, const Tensor& projection, const ResidualStream& in,
                  float* logits) const;

 private:
  /// fp32 logits (rows, V) of rows [first, first + rows) of `hidden`, in `scratch`.
  kernels::Matrix Logits(const Pass& pass, const Tensor& projection, kernels::ConstMatrix hidden,
                         const Tensor& scratch) const;
  Tensor AllocateLogits(const Pass& pass) const;

  int64_t vocab_size_, block_rows_;
  Norm norm_;
  int projection_ = -1;
};

}  // namespace holdfast
