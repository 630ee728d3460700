#include "checkpoint/admin/checkpoint_values.h"

#include <algorithm>
#include <cstring>

#include "framework/base/status.h"

namespace holdfast {

absl::Status CheckpointValues::Read(int64_t first, absl::Span<float> out) {
  while (!out.empty()) {
    const auto end = begin_ + static_cast<int64_t>(window_.size());
    if (first < begin_ || first >= end) {
      RETURN_IF_ERROR(LoadWindow(first, static_cast<int64_t>(out.size())));
      continue;
    }
    const auto count = std::min(out.size(), static_cast<size_t>(end - first));
    std::copy_n(window_.begin() + (first - begin_), count, out.begin());
    first += static_cast<int64_t>(count);
    out.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status CheckpointValues::LoadWindow(int64_t element, int64_t count) {
  const bool follows = element == begin_ + static_cast<int64_t>(window_.size());
  const auto chunks = layout_.chunks();
  HOLDFAST_CHECK(element >= 0 && element < layout_.elements());
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), element,
                                      [](int64_t at, const Chunk& chunk) { return at < chunk.offset; });
  auto chunk = static_cast<size_t>(after - chunks.begin()) - 1;
  std::vector<int> wanted;
  int64_t elements = 0;
  begin_ = chunks[chunk].offset;
  const auto wanted_more = [&] {
    if (chunk == chunks.size()) return false;
    if (elements == 0) return true;
    if (!follows && begin_ + elements >= element + count) return false;
    return elements + chunks[chunk].elements <= kWindowElements;
  };
  while (wanted_more()) {
    elements += chunks[chunk].elements;
    wanted.push_back(static_cast<int>(chunk++));
  }
  window_.assign(static_cast<size_t>(elements), 0.0f);
  const auto keep = [&](int index, absl::Span<const std::byte> bytes) {
    const Chunk& c = chunks[static_cast<size_t>(index)];
    const std::vector<std::string>& planes = reader_.manifest().tensors[static_cast<size_t>(c.parameter)].planes;
    const auto plane = std::find(planes.begin(), planes.end(), plane_) - planes.begin();
    HOLDFAST_CHECK(static_cast<size_t>(plane) < planes.size());
    const size_t size = static_cast<size_t>(c.elements) * sizeof(float);
    std::memcpy(window_.data() + (c.offset - begin_), bytes.data() + static_cast<size_t>(plane) * size, size);
    return absl::OkStatus();
  };
  absl::Status status = reader_.ReadChunks(layout_, wanted, {.threads = threads_}, keep);
  if (!status.ok()) window_.clear();
  return status;
}

}  // namespace holdfast
