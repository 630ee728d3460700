#include "checkpoint/admin/checkpoint_statistics.h"

#include <cstddef>
#include <cstdint>

#include "checkpoint/sharded/stored_layout.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::vector<KindStatistics>> ComputeStatistics(const CheckpointReader& reader,
                                                              const std::vector<int>& tensors, int threads,
                                                              const ByteProgress& progress) {
  HF_ASSIGN_OR_RETURN(const ParameterLayout layout, LayoutOf(reader.manifest()));
  std::vector<int> place(layout.parameters().size(), -1), wanted;
  for (size_t i = 0; i < tensors.size(); ++i) place[static_cast<size_t>(tensors[i])] = static_cast<int>(i);
  uint64_t bytes = 0;
  for (size_t c = 0; c < layout.chunks().size(); ++c) {
    const Chunk& chunk = layout.chunks()[c];
    if (place[static_cast<size_t>(chunk.parameter)] < 0) continue;
    wanted.push_back(static_cast<int>(c));
    bytes += static_cast<uint64_t>(chunk.elements) * kStateKinds * sizeof(float);
  }
  std::vector<KindStatistics> of_chunk(layout.chunks().size());  // added up in order: threads change no digit
  ByteCounter counter(bytes, progress);
  const auto look = [&](int index, absl::Span<const std::byte> data) {
    const absl::Span<const float> values(reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float));
    const size_t count = values.size() / kStateKinds;
    for (size_t kind = 0; kind < kStateKinds; ++kind) {
      of_chunk[static_cast<size_t>(index)][kind] = TensorStatistics::Of(values.subspan(kind * count, count));
    }
    counter.Add(data.size());
    return absl::OkStatus();
  };
  HF_RETURN_IF_ERROR(reader.ReadChunks(layout, wanted, {.threads = threads}, look));
  std::vector<KindStatistics> result(tensors.size());
  for (const int index : wanted) {
    const int parameter = layout.chunks()[static_cast<size_t>(index)].parameter;
    KindStatistics& of_tensor = result[static_cast<size_t>(place[static_cast<size_t>(parameter)])];
    for (size_t kind = 0; kind < kStateKinds; ++kind)
      of_tensor[kind].Append(of_chunk[static_cast<size_t>(index)][kind]);
  }
  return result;
}

}  // namespace holdfast
