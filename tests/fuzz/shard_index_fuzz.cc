// What ParseShardIndex does with any bytes, and what the plans of loading and verifying make of the chunks it accepts.
// The digest is put right first, else hardly anything would get past it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "checkpoint/sharded/shard_index.h"
#include "checkpoint/sharded/verify_plan.h"

namespace holdfast {
namespace {

constexpr size_t kDigestBytes = 32;
constexpr uint64_t kFileBytes = 1 << 20;

void Check(bool condition) {
  if (!condition) abort();
}

// Tensors that the chunks may well cover: as many rows as there are, each of as many values as the first plain piece
// says.
std::vector<StoredTensor> TensorsFor(const std::vector<StoredChunk>& chunks) {
  std::vector<StoredTensor> tensors;
  for (const StoredChunk& chunk : chunks) {
    if (chunk.tensor >= 100) return {};
    while (tensors.size() <= static_cast<size_t>(chunk.tensor)) tensors.push_back({"t", {1, 1}});
    StoredTensor& tensor = tensors[static_cast<size_t>(chunk.tensor)];
    const auto rows = static_cast<uint64_t>(chunk.rows + chunk.padding_rows);
    for (const StoredPiece& piece : chunk.pieces) {
      if (!piece.compressed) tensor.shape[1] = static_cast<int64_t>(std::max<uint64_t>(1, piece.size / rows / 4));
    }
    tensor.shape[0] = std::max(tensor.shape[0], chunk.first_row + chunk.rows);
  }
  return tensors;
}

void Plan(const std::vector<StoredChunk>& shard) {
  const StoredChunks chunks{shard};
  Manifest manifest;
  manifest.tensors = TensorsFor(shard);
  manifest.shards = {{.data = {.name = "data", .size = kFileBytes}, .index = {}}};
  const VerifyPlan verify = PlanVerify(manifest, chunks, 1 << 12);
  size_t planned = verify.scattered.size();
  uint64_t bytes = 0;
  for (const VerifySegment& segment : verify.segments) {
    planned += segment.chunks.size();
    bytes += segment.size;
  }
  Check(planned == shard.size() && bytes == kFileBytes);
  if (manifest.tensors.empty() || !CheckCoverage(manifest.tensors, chunks).ok()) return;
  std::vector<WantedRows> wanted;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const int64_t rows = manifest.tensors[t].rows();
    wanted.push_back({.id = 0, .tensor = static_cast<int>(t), .first_row = rows / 2, .rows = rows - rows / 2});
  }
  size_t seen = 0;
  for (const ReadBatch& batch : PlanReads(manifest.tensors, chunks, OrderByRow(chunks), wanted)) {
    seen += batch.wanted.size();
    for (const FileRange& range : batch.ranges) Check(range.offset + range.size <= kFileBytes);
  }
  Check(seen == wanted.size());
}

void Parse(const std::string& bytes) {
  const absl::StatusOr<std::vector<StoredChunk>> chunks = ParseShardIndex(bytes, kFileBytes);
  if (!chunks.ok()) {
    Check(absl::IsDataLoss(chunks.status()) || absl::IsInvalidArgument(chunks.status()));
    return;
  }
  for (const StoredChunk& chunk : *chunks) {
    for (const StoredPiece& piece : chunk.pieces) Check(piece.offset + piece.size <= kFileBytes);
  }
  // Of an older version: what is written says the same.
  const std::string written = FormatShardIndex(*chunks);
  const absl::StatusOr<std::vector<StoredChunk>> again = ParseShardIndex(written, kFileBytes);
  Check(again.ok() && FormatShardIndex(*again) == written);
  Plan(*chunks);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(input);
  const std::string body = input.substr(0, size < holdfast::kDigestBytes ? size : size - holdfast::kDigestBytes);
  holdfast::Parse(body + holdfast::DigestFile(body));
  return 0;
}
