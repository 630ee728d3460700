#pragma once
// Muon (Jordan 2024) with the scaling and weight decay of Liu et al. 2025 (arXiv 2502.16982, section 2.2), of matrices
// between hidden vectors; AdamW of all other parameters. Of a matrix W (rows, columns), with gradient G:
//
//   M' = momentum * M + G
//   O  = the orthogonal matrix near momentum * M' + G (Nesterov), by five Newton-Schulz iterations
//   U  = 0.2 * sqrt(max(rows, columns)) * O
//   W' = W - lr * (U + weight_decay * W)
//
// U is a function of the whole matrix, so it is made by its owner, in fp32 and by products whose bits depend on shapes
// only. M' and W' are made wherever there is a part of the matrix, from that part of G and U, as fixed sequences of
// IEEE-754 operations: the same bits on every device. Of a parameter that is several matrices (ParameterSpec::fused)
// each has a U of its own, as Jordan advises for query, key and value.

#include "framework/optim/adamw.h"

namespace holdfast {

class Muon final : public Optimizer {
 public:
  explicit Muon(const OptimizerConfig& config) : config_(config), adamw_(config) {}

  std::vector<Plane> PlanesOf(const ParameterSpec& parameter) const override;
  bool TakesWhole(const ParameterSpec& parameter) const override {
    return parameter.hidden && parameter.shape.rank() == 2;
  }
  void Contribute(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars, float* out) const override;
  int64_t WorkspaceElements(const ParameterSpec& parameter) const override;
  absl::Status MakeUpdate(Device& device, Stream& stream, const ParameterSpec& parameter, float* matrix,
                          float* workspace) const override;
  void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
             uint16_t* weight_bf16) const override;

 private:
  OptimizerConfig config_;
  AdamW adamw_;
};

}  // namespace holdfast
