#pragma once
// What of a model is not trained: its weights lie whole with every rank, in the dtype in which passes read them, and
// nothing of them is updated, sent, mirrored or saved. PartlyFrozenStore is what a model asks for weights then.

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/model.h"
#include "framework/nn/trained_part.h"
#include "framework/tensor/tensor.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Thread-safety: none.
class FrozenWeights {
 public:
  /// Read piece by piece, each of one parameter, by `read`, which has the offsets of parts.model(). `parts` must
  /// outlive this.
  static absl::StatusOr<std::unique_ptr<FrozenWeights>> Create(const TrainedPart& parts, DType compute_dtype,
                                                               Device& device, Stream& stream,
                                                               const ReadWeightsFn& read);

  const TrainedPart& parts() const { return parts_; }
  /// Of a parameter of the model; without data if it is trained.
  const Tensor& tensor(int parameter) const { return tensors_[static_cast<size_t>(parameter)]; }

  /// Bytes of the frozen parameters of a layout.
  static int64_t Bytes(const ParameterLayout& model, DType compute_dtype);

 private:
  FrozenWeights(const TrainedPart& parts, Buffer memory) : parts_(parts), memory_(std::move(memory)) {}
  absl::Status Fill(Device& device, Stream& stream, const ReadWeightsFn& read);

  const TrainedPart& parts_;
  Buffer memory_;
  std::vector<Tensor> tensors_;  // by parameter of the model
};

/// The units of a model of which `trained` has the trained parameters. Gradients of the others are tensors without a
/// shape: the model makes none. Thread-safety: none.
class PartlyFrozenStore final : public UnitStore {
 public:
  /// Both must outlive the store.
  PartlyFrozenStore(const FrozenWeights& frozen, UnitStore& trained);

  absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) override;
  absl::Status EndGradients(int unit) override;

 private:
  /// Puts the trained ones of a unit into `all`, which has the others.
  absl::Span<const Tensor> Merge(int unit, absl::Span<const Tensor> trained, std::vector<Tensor>& all) const;

  const FrozenWeights& frozen_;
  UnitStore& trained_;
  std::vector<std::vector<Tensor>> weights_, gradients_;  // by unit of the model
};

}  // namespace holdfast
