#include "checkpoint/admin/checkpoint_statistics.h"

#include <cstddef>
#include <cstdint>

#include "checkpoint/sharded/stored_layout.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::vector<PlaneStatistics>> ComputeStatistics(const CheckpointReader& reader,
                                                               const std::vector<int>& tensors, int threads,
                                                               const ByteProgress& progress) {
  ASSIGN_OR_RETURN(const ParameterLayout layout, LayoutOf(reader.manifest()));
  std::vector<int> place(layout.parameters().size(), -1), wanted;
  for (size_t i = 0; i < tensors.size(); ++i) place[static_cast<size_t>(tensors[i])] = static_cast<int>(i);
  const auto planes_of = [&](const Chunk& chunk) {
    return reader.manifest().tensors[static_cast<size_t>(chunk.parameter)].planes.size();
  };
  uint64_t bytes = 0;
  for (size_t c = 0; c < layout.chunks().size(); ++c) {
    const Chunk& chunk = layout.chunks()[c];
    if (place[static_cast<size_t>(chunk.parameter)] < 0) continue;
    wanted.push_back(static_cast<int>(c));
    bytes += static_cast<uint64_t>(chunk.elements) * planes_of(chunk) * sizeof(float);
  }
  std::vector<PlaneStatistics> of_chunk(layout.chunks().size());  // added up in order: threads change no digit
  ByteCounter counter(bytes, progress);
  const auto look = [&](int index, absl::Span<const std::byte> data) {
    const absl::Span<const float> values(reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float));
    const size_t planes = planes_of(layout.chunks()[static_cast<size_t>(index)]), count = values.size() / planes;
    for (size_t plane = 0; plane < planes; ++plane) {
      of_chunk[static_cast<size_t>(index)].push_back(TensorStatistics::Of(values.subspan(plane * count, count)));
    }
    counter.Add(data.size());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(reader.ReadChunks(layout, wanted, {.threads = threads}, look));
  std::vector<PlaneStatistics> result(tensors.size());
  for (const int index : wanted) {
    const int parameter = layout.chunks()[static_cast<size_t>(index)].parameter;
    PlaneStatistics& of_tensor = result[static_cast<size_t>(place[static_cast<size_t>(parameter)])];
    const PlaneStatistics& more = of_chunk[static_cast<size_t>(index)];
    of_tensor.resize(more.size());
    for (size_t plane = 0; plane < more.size(); ++plane) of_tensor[plane].Append(more[plane]);
  }
  return result;
}

}  // namespace holdfast
