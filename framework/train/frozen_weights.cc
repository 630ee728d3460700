#include "framework/train/frozen_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPieceElements = int64_t{1} << 22;  // read at a time, or a row if it is longer: 16 MiB of fp32

int64_t AlignedBytes(const ParameterSpec& spec, DType compute_dtype) {
  const int64_t bytes = spec.shape.elements() * static_cast<int64_t>(kernels::SizeOf(spec.ReadType(compute_dtype)));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t FrozenWeights::Bytes(const ParameterLayout& model, DType compute_dtype) {
  int64_t bytes = 0;
  for (const ParameterSpec& spec : model.parameters()) bytes += spec.frozen ? AlignedBytes(spec, compute_dtype) : 0;
  return bytes;
}

absl::StatusOr<std::unique_ptr<FrozenWeights>> FrozenWeights::Create(const TrainedPart& parts, DType compute_dtype,
                                                                     Device& device, Stream& stream,
                                                                     const ReadWeightsFn& read) {
  const auto bytes = static_cast<size_t>(Bytes(parts.model(), compute_dtype));
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, bytes, "frozen weights"));
  std::unique_ptr<FrozenWeights> frozen(new FrozenWeights(parts, std::move(memory)));
  int64_t next = 0;
  for (const ParameterSpec& spec : parts.model().parameters()) {
    Tensor tensor{nullptr, spec.ReadType(compute_dtype), spec.shape};
    if (spec.frozen) {
      tensor.data = frozen->memory_.as<std::byte>() + next;
      next += AlignedBytes(spec, compute_dtype);
    }
    frozen->tensors_.push_back(tensor);
  }
  RETURN_IF_ERROR(frozen->Fill(device, stream, read));
  return frozen;
}

absl::Status FrozenWeights::Fill(Device& device, Stream& stream, const ReadWeightsFn& read) {
  Buffer staged;  // fp32 on the device
  std::vector<float> values;
  for (size_t p = 0; p < tensors_.size(); ++p) {
    const ParameterSpec& spec = parts_.model().parameters()[p];
    if (!spec.frozen) continue;
    const int64_t cols = spec.shape.cols(), step = std::max<int64_t>(1, kPieceElements / cols) * cols;
    for (int64_t first = 0; first < spec.shape.elements(); first += step) {
      values.resize(static_cast<size_t>(std::min(step, spec.shape.elements() - first)));
      RETURN_IF_ERROR(read(spec.offset + first, absl::MakeSpan(values)));
      const size_t bytes = values.size() * sizeof(float);
      if (tensors_[p].dtype == DType::kF32) {
        device.CopyFromCpu(tensors_[p].f32() + first, values.data(), bytes);
        continue;
      }
      if (staged.bytes() < bytes) {
        ASSIGN_OR_RETURN(staged, Buffer::Allocate(device, bytes, "frozen weights"));
      }
      device.CopyFromCpu(staged.data(), values.data(), bytes);
      stream.ops().CastToBf16(tensors_[p].bf16() + first, staged.as<float>(), static_cast<int64_t>(values.size()));
      RETURN_IF_ERROR(stream.Synchronize());
    }
  }
  return absl::OkStatus();
}

PartlyFrozenStore::PartlyFrozenStore(const FrozenWeights& frozen, UnitStore& trained)
    : frozen_(frozen), trained_(trained) {
  for (const Unit& unit : frozen.parts().model().units()) {
    std::vector<Tensor>& weights = weights_.emplace_back();
    for (int p = unit.first_parameter; p < unit.first_parameter + unit.num_parameters; ++p) {
      weights.push_back(frozen.tensor(p));
    }
    gradients_.emplace_back(weights.size());
  }
}

absl::Span<const Tensor> PartlyFrozenStore::Merge(int unit, absl::Span<const Tensor> trained,
                                                  std::vector<Tensor>& all) const {
  const int first = frozen_.parts().model().units()[static_cast<size_t>(unit)].first_parameter;
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (frozen_.parts().ParameterOf(first + static_cast<int>(i)) >= 0) all[i] = trained[next++];
  }
  return all;
}

absl::StatusOr<absl::Span<const Tensor>> PartlyFrozenStore::Acquire(int unit) {
  std::vector<Tensor>& all = weights_[static_cast<size_t>(unit)];
  const int in_trained = frozen_.parts().UnitOf(unit);
  if (in_trained < 0) return all;
  ASSIGN_OR_RETURN(const absl::Span<const Tensor> trained, trained_.Acquire(in_trained));
  return Merge(unit, trained, all);
}

void PartlyFrozenStore::Release(int unit) {
  const int in_trained = frozen_.parts().UnitOf(unit);
  if (in_trained >= 0) trained_.Release(in_trained);
}

absl::StatusOr<absl::Span<const Tensor>> PartlyFrozenStore::BeginGradients(int unit) {
  std::vector<Tensor>& all = gradients_[static_cast<size_t>(unit)];
  const int in_trained = frozen_.parts().UnitOf(unit);
  if (in_trained < 0) return all;
  ASSIGN_OR_RETURN(const absl::Span<const Tensor> trained, trained_.BeginGradients(in_trained));
  return Merge(unit, trained, all);
}

absl::Status PartlyFrozenStore::EndGradients(int unit) {
  const int in_trained = frozen_.parts().UnitOf(unit);
  return in_trained < 0 ? absl::OkStatus() : trained_.EndGradients(in_trained);
}

}  // namespace holdfast
