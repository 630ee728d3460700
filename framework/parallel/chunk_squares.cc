#include "framework/parallel/chunk_squares.h"

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::vector<double>> ChunkSquares::Of(const float* x, absl::Span<const int64_t> offsets, Device& device,
                                                     Stream& stream) {
  std::vector<double> sums(offsets.size() - 1);
  const size_t bytes = sums.size() * sizeof(double);
  if (sums_.bytes() < bytes) {
    sums_ = Buffer();
    HF_ASSIGN_OR_RETURN(sums_, Buffer::Allocate(device, bytes, "gradient norms"));
  }
  stream.ops().ChunkSumSquares(sums_.as<double>(), x, offsets.data(), static_cast<int64_t>(sums.size()));
  HF_RETURN_IF_ERROR(stream.Synchronize());
  device.CopyToHost(sums.data(), sums_.data(), bytes);
  return sums;
}

}  // namespace holdfast
