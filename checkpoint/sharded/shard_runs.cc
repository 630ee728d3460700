#include "checkpoint/sharded/shard_runs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

bool Continues(const ShardRun& run, const StoredChunk& last, const StoredChunk& chunk) {
  return chunk.tensor == run.tensor && chunk.first_row == run.first_row + run.rows && last.rows == run.chunk_rows &&
         chunk.rows <= run.chunk_rows;
}

}  // namespace

std::vector<ShardRun> PlanRuns(absl::Span<const StoredChunk> chunks) {
  std::vector<ShardRun> runs;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const StoredChunk& chunk = chunks[i];
    if (runs.empty() || !Continues(runs.back(), chunks[i - 1], chunk)) {
      const bool again = !runs.empty() && runs.back().tensor == chunk.tensor;
      if (again) runs.back().only = false;
      runs.push_back({.tensor = chunk.tensor,
                      .first_row = chunk.first_row,
                      .chunk_rows = chunk.rows,
                      .first_chunk = i,
                      .only = !again});
    }
    runs.back().rows += chunk.rows;
    ++runs.back().count;
  }
  return runs;
}

void SetPadding(absl::Span<const ShardRun> runs, absl::Span<StoredChunk> chunks) {
  for (const ShardRun& run : runs) {
    for (StoredChunk& chunk : chunks.subspan(run.first_chunk, run.count)) {
      chunk.padding_rows = run.chunk_rows - chunk.rows;
    }
  }
}

std::string DatasetName(const std::string& tensor, const ShardRun& run) {
  return run.only ? tensor : absl::StrCat(tensor, "@", run.first_row);
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
