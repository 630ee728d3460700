#pragma once
// Carries out the batches of a plan: reads, decompresses, checks digests, puts wanted rows together.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "checkpoint/storage/storage.h"

namespace holdfast {

/// Grows and never shrinks. What was in it is gone after growing.
class ScratchBytes {
 public:
  /// `bytes` bytes at an address that is `remainder` modulo 64.
  std::byte* Get(size_t bytes, size_t remainder = 0);

 private:
  std::vector<std::byte> bytes_;
};

/// A stored chunk out of bytes that were read. One per thread: keeps its buffers.
class ChunkDecoder {
 public:
  explicit ChunkDecoder(const Manifest& manifest) : manifest_(manifest) {}

  /// Weight, exp_avg and exp_avg_sq without padding, one after the other; valid until the next call, or as long as
  /// `pieces` where they are that already. DataLoss, naming file and tensor, if the digest does not fit.
  absl::StatusOr<absl::Span<const std::byte>> Decode(int shard, const StoredChunk& chunk,
                                                     absl::Span<const absl::Span<const std::byte>> pieces);

 private:
  const Manifest& manifest_;
  PieceDecoder decoder_;
  ScratchBytes scratch_;
};

/// One per thread. Memory: what one batch reads, one chunk decoded, and what the batch's wanted rows take.
class BatchReader {
 public:
  using Sink = absl::FunctionRef<absl::Status(const WantedRows& wanted, absl::Span<const std::byte> bytes)>;

  BatchReader(Storage& storage, const Manifest& manifest, const StoredChunks& chunks)
      : storage_(storage), manifest_(manifest), chunks_(chunks), decoder_(manifest) {}

  /// Gives each of batch.wanted to `sink`: weight, exp_avg, exp_avg_sq of its rows, one after the other.
  absl::Status Run(const ReadBatch& batch, Sink sink);

 private:
  absl::Status ReadRanges(const ReadBatch& batch);
  absl::Span<const std::byte> Piece(const ReadBatch& batch, int shard, const StoredPiece& piece) const;
  absl::Status Use(const ReadBatch& batch, const ChunkRead& read, Sink sink);

  /// Of the rows in canonical form: how many bytes the weight takes.
  size_t KindBytes(const WantedRows& wanted) const;

  Storage& storage_;
  const Manifest& manifest_;
  const StoredChunks& chunks_;
  ChunkDecoder decoder_;
  ScratchBytes read_, assembled_;
  std::vector<const std::byte*> range_data_;  // of each of batch.ranges
  std::vector<std::byte*> place_;             // of each of batch.wanted; null if a stored chunk is just that
};

}  // namespace holdfast
