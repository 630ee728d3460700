#pragma once
// Weights that are only read: what of a model is not trained, and all of one that is evaluated.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/layout.h"
#include "framework/tensor/tensor.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Parameters in the dtype in which passes read them, without a copy in fp32. Thread-safety: none.
class ReadOnlyWeights {
 public:
  using Wanted = absl::FunctionRef<bool(const ParameterSpec&)>;
  static bool All(const ParameterSpec&) { return true; }
  static bool Frozen(const ParameterSpec& spec) { return spec.frozen; }

  /// Those of `layout` that are wanted, read piece by piece, each of whole rows of one parameter, by `read`, which has
  /// the offsets of `layout`.
  static absl::StatusOr<ReadOnlyWeights> Load(const ParameterLayout& layout, Wanted wanted, DType compute_dtype,
                                              Device& device, Stream& stream, const ReadWeightsFn& read);
  /// What these take.
  static int64_t Bytes(const ParameterLayout& layout, Wanted wanted, DType compute_dtype);

  /// By parameter of the layout; without data if it was not wanted.
  absl::Span<const Tensor> tensors() const { return tensors_; }

 private:
  ReadOnlyWeights(Buffer memory, std::vector<Tensor> tensors)
      : memory_(std::move(memory)), tensors_(std::move(tensors)) {}

  Buffer memory_;
  std::vector<Tensor> tensors_;
};

}  // namespace holdfast
