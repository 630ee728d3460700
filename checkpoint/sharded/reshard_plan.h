#pragma once
// Which stored chunks make up the chunks somebody wants. The grids may differ: what was written in chunks of one size
// loads in chunks of any other, for ever. Pure.
//
//   RETURN_IF_ERROR(CheckCoverage(manifest.tensors, chunks));
//   const std::vector<ChunkRef> rows = OrderByRow(chunks);
//   for (const ReadBatch& batch : PlanReads(manifest.tensors, chunks, rows, wanted)) ...   // one after the other

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/shard_index.h"

namespace holdfast {

/// Stored chunks of each shard.
using StoredChunks = std::vector<std::vector<StoredChunk>>;

/// A stored chunk: chunks[shard][chunk].
struct ChunkRef {
  int shard = 0, chunk = 0;
  friend bool operator==(const ChunkRef&, const ChunkRef&) = default;
};

inline const StoredChunk& At(const StoredChunks& chunks, ChunkRef ref) {
  return chunks[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
}

/// Rows of a tensor that somebody wants.
struct WantedRows {
  int id = 0;  // the wanter's
  int tensor = 0;
  int64_t first_row = 0, rows = 0;
};

/// Rows [from_row, from_row + rows) of a stored chunk are rows [to_row, ...) of `wanted` of a batch.
struct RowCopy {
  int wanted = 0;
  int64_t from_row = 0, to_row = 0, rows = 0;
};

/// A stored chunk that is needed, and for what.
struct ChunkRead {
  ChunkRef stored;
  std::vector<RowCopy> copies;
};

/// Bytes of a shard file, read at once.
struct FileRange {
  int shard = 0;
  uint64_t offset = 0, size = 0;
  friend bool operator==(const FileRange&, const FileRange&) = default;
};

/// What one thread reads and puts together in one go: it holds all that its `wanted` need, so threads share nothing.
struct ReadBatch {
  std::vector<WantedRows> wanted;
  std::vector<ChunkRead> reads;   // by shard and place in its file
  std::vector<FileRange> ranges;  // the same: all pieces of `reads` lie in them
};

struct ReadLimits {
  int64_t batch_bytes = 2 << 20;  // decoded; more only where one wanted or stored chunk is larger by itself
  uint64_t gap_bytes = 16 << 10;  // that are rather read than skipped
};

/// Of a stored piece with its padding, decoded.
int64_t PieceBytes(const StoredTensor& tensor, const StoredChunk& chunk);

/// Every row of every tensor is stored exactly once, and every chunk's size fits its tensor. InvalidArgument, naming
/// the tensor and the rows.
absl::Status CheckCoverage(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks);

/// All chunks by tensor and row: the canonical order.
std::vector<ChunkRef> OrderByRow(const StoredChunks& chunks);

/// Those of `by_row` (OrderByRow of covered chunks) that hold some of these rows.
absl::Span<const ChunkRef> FindChunks(const StoredChunks& chunks, absl::Span<const ChunkRef> by_row,
                                      const WantedRows& wanted);

/// The ranges that hold these pieces, by shard and offset, joined where the gap between two is small.
std::vector<FileRange> JoinRanges(std::vector<FileRange> pieces, uint64_t gap_bytes);

/// Batches in the order of shards and of places in their files. Every one of `wanted` is in exactly one; what lies on
/// the border of two batches is read by both. `wanted` must lie inside the tensors.
std::vector<ReadBatch> PlanReads(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks,
                                 absl::Span<const ChunkRef> by_row, absl::Span<const WantedRows> wanted,
                                 const ReadLimits& limits = {});

}  // namespace holdfast
