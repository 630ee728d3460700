#include "checkpoint/sharded/shard_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// A shorter chunk is a dataset of its own, which takes some hundred bytes: HDF5 stores chunks whole, so within a
// dataset of others it would be filled up with zeros.
bool Continues(const ShardRange& range, const StoredChunk& chunk) {
  return chunk.tensor == range.tensor && chunk.first_row == range.first_row + range.rows &&
         chunk.rows == range.chunk_rows;
}

}  // namespace

std::vector<ShardRange> PlanRanges(absl::Span<const StoredChunk> chunks) {
  std::vector<ShardRange> ranges;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const StoredChunk& chunk = chunks[i];
    if (ranges.empty() || !Continues(ranges.back(), chunk)) {
      const bool again = !ranges.empty() && ranges.back().tensor == chunk.tensor;
      if (again) ranges.back().only = false;
      ranges.push_back({.tensor = chunk.tensor,
                        .first_row = chunk.first_row,
                        .chunk_rows = chunk.rows,
                        .first_chunk = i,
                        .only = !again});
    }
    ranges.back().rows += chunk.rows;
    ++ranges.back().count;
  }
  return ranges;
}

std::string DatasetName(const std::string& tensor, const ShardRange& range) {
  return range.only ? tensor : absl::StrCat(tensor, "@", range.first_row);
}

absl::Status CheckTensorName(absl::string_view name) {
  const bool bad = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '@' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!name.empty() && name.size() <= 1000 && name != "." && !bad) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name.substr(0, 100), "\" cannot be the name of a tensor in a checkpoint: 1 to 1000 ",
                   "characters, none of them '/', '@' or a control character, and not \".\""));
}

std::string ShardFileName(int shard, int num_shards, absl::string_view extension) {
  return absl::StrCat("shard-", shard, "-of-", num_shards, extension);
}

}  // namespace holdfast
