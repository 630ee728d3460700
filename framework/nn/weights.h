#pragma once
// The values of a model: fp32 master weights as one flat vector in canonical order, and the copies in the compute dtype
// that forward and backward read.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/layout.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Thread-safety: none.
class Weights {
 public:
  /// Uninitialised values. `layout`, `device` and `ops` must outlive the weights.
  static absl::StatusOr<Weights> Create(const ParameterLayout& layout, DType compute_dtype, Device& device,
                                        kernels::Ops& ops);

  /// By the layout's initialisers: a value depends on (seed, parameter, element) only.
  void Initialize(uint64_t seed);
  /// From CPU memory: canonical order, layout.elements() values.
  void Set(absl::Span<const float> values);
  /// Values [first, first + out.size()) of the flat vector.
  void Read(int64_t first, absl::Span<float> out) const;

  float* master(int parameter) const { return master_.as<float>() + spec(parameter).offset; }
  /// Where an update has to write the bf16 copy of a parameter; null if there is none.
  uint16_t* bf16_copy(int parameter) const;
  /// What forward and backward read: one tensor per parameter.
  absl::Span<const Tensor> compute() const { return compute_; }

  const ParameterLayout& layout() const { return *layout_; }
  size_t bytes() const { return master_.bytes() + copies_.bytes(); }

 private:
  Weights(const ParameterLayout& layout, Device& device, kernels::Ops& ops)
      : layout_(&layout), device_(&device), ops_(&ops) {}
  const ParameterSpec& spec(int parameter) const { return layout_->parameters()[static_cast<size_t>(parameter)]; }
  void RefreshCopies();

  const ParameterLayout* layout_;
  Device* device_;
  kernels::Ops* ops_;
  Buffer master_;  // fp32 (elements)
  Buffer copies_;  // bf16 copies of the matrices; empty for fp32 compute
  std::vector<Tensor> compute_;
};

}  // namespace holdfast
