#include "framework/parallel/chunk_squares.h"

#include <vector>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::map<int64_t, double>> ChunkSquares::Of(absl::Span<const ChunkRange> ranges,
                                                           const ParameterLayout& layout, Device& device,
                                                           Stream& stream) {
  size_t count = 0;
  for (const ChunkRange& range : ranges) count += static_cast<size_t>(range.end - range.first);
  std::vector<double> sums(count);
  const size_t bytes = count * sizeof(double);
  if (sums_.bytes() < bytes) {
    sums_ = Buffer();
    ASSIGN_OR_RETURN(sums_, Buffer::Allocate(device, bytes, "gradient norms"));
  }
  double* out = sums_.as<double>();
  for (const ChunkRange& range : ranges) {
    std::vector<int64_t> offsets{0};
    for (int64_t c = range.first; c < range.end; ++c) {
      offsets.push_back(offsets.back() + layout.chunks()[static_cast<size_t>(c)].elements);
    }
    stream.ops().ChunkSumSquares(out, range.x, offsets.data(), range.end - range.first);
    out += range.end - range.first;
  }
  RETURN_IF_ERROR(stream.Synchronize());
  device.CopyToCpu(sums.data(), sums_.data(), bytes);
  std::map<int64_t, double> by_chunk;
  size_t next = 0;
  for (const ChunkRange& range : ranges) {
    for (int64_t c = range.first; c < range.end; ++c) {
      const double factor =
          layout.parameters()[static_cast<size_t>(layout.chunks()[static_cast<size_t>(c)].parameter)].norm_factor;
      by_chunk.emplace_hint(by_chunk.end(), c, factor * factor * sums[next++]);
    }
  }
  return by_chunk;
}

}  // namespace holdfast
