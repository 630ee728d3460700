#include "framework/train/read_only_weights.h"

#include <algorithm>
#include <cstddef>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPieceElements = int64_t{1} << 22;  // read at a time, or a row if it is longer: 16 MiB of fp32

int64_t AlignedBytes(const ParameterSpec& spec, DType compute_dtype) {
  const int64_t bytes = spec.shape.elements() * static_cast<int64_t>(kernels::SizeOf(spec.ReadType(compute_dtype)));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Values as they are read, on their way into tensors.
class Piecewise {
 public:
  Piecewise(Device& device, Stream& stream, const ReadWeightsFn& read)
      : device_(device), stream_(stream), read_(read) {}

  /// All of a parameter.
  absl::Status Fill(const ParameterSpec& spec, const Tensor& tensor) {
    const int64_t cols = spec.shape.cols(), step = std::max<int64_t>(1, kPieceElements / cols) * cols;
    for (int64_t first = 0; first < spec.shape.elements(); first += step) {
      values_.resize(static_cast<size_t>(std::min(step, spec.shape.elements() - first)));
      RETURN_IF_ERROR(read_(spec.offset + first, absl::MakeSpan(values_)));
      RETURN_IF_ERROR(Put(tensor, first));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Put(const Tensor& tensor, int64_t first) {
    const size_t bytes = values_.size() * sizeof(float);
    if (tensor.dtype == DType::kF32) {
      device_.CopyFromCpu(tensor.f32() + first, values_.data(), bytes);
      return absl::OkStatus();
    }
    if (staged_.bytes() < bytes) {
      ASSIGN_OR_RETURN(staged_, Buffer::Allocate(device_, bytes, "weights"));
    }
    device_.CopyFromCpu(staged_.data(), values_.data(), bytes);
    stream_.ops().CastToBf16(tensor.bf16() + first, staged_.as<float>(), static_cast<int64_t>(values_.size()));
    return stream_.Synchronize();
  }

  Device& device_;
  Stream& stream_;
  const ReadWeightsFn& read_;
  std::vector<float> values_;
  Buffer staged_;  // fp32 on the device
};

}  // namespace

int64_t ReadOnlyWeights::Bytes(const ParameterLayout& layout, Wanted wanted, DType compute_dtype) {
  int64_t bytes = 0;
  for (const ParameterSpec& spec : layout.parameters()) bytes += wanted(spec) ? AlignedBytes(spec, compute_dtype) : 0;
  return bytes;
}

absl::StatusOr<ReadOnlyWeights> ReadOnlyWeights::Load(const ParameterLayout& layout, Wanted wanted, DType compute_dtype,
                                                      Device& device, Stream& stream, const ReadWeightsFn& read) {
  const auto bytes = static_cast<size_t>(Bytes(layout, wanted, compute_dtype));
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, bytes, "weights"));
  std::vector<Tensor> tensors;
  Piecewise pieces(device, stream, read);
  int64_t next = 0;
  for (const ParameterSpec& spec : layout.parameters()) {
    tensors.push_back({nullptr, spec.ReadType(compute_dtype), spec.shape});
    if (!wanted(spec)) continue;
    tensors.back().data = memory.as<std::byte>() + next;
    next += AlignedBytes(spec, compute_dtype);
    RETURN_IF_ERROR(pieces.Fill(spec, tensors.back()));
  }
  return ReadOnlyWeights(std::move(memory), std::move(tensors));
}

}  // namespace holdfast
