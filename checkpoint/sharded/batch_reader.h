#pragma once
// Carries out the batches of a plan: reads, decompresses, checks digests, puts wanted rows together.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Memory for each plane of a chunk; or none.
using ChunkPlaces = absl::InlinedVector<absl::Span<std::byte>, kMaxPlanes>;
/// Where the chunk of this id may be put as it is stored, with no copy between; called once for each, by any thread.
using PlaceFn = std::function<ChunkPlaces(int id)>;

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

  /// Its planes without padding, one after the other; valid until the next call, or as long as
  /// `pieces` where they are that already. DataLoss, naming file and tensor, if the digest does not fit.
  absl::StatusOr<absl::Span<const std::byte>> Decode(int shard, const StoredChunk& chunk,
                                                     absl::Span<const absl::Span<const std::byte>> pieces);

  /// Of a chunk that lies where it belongs: DataLoss as above.
  absl::Status Check(int shard, const StoredChunk& chunk, const ChunkPlaces& places) const;

 private:
  std::string Where(int shard, const StoredChunk& chunk) const;
  absl::Status Compare(uint64_t digest, int shard, const StoredChunk& chunk) const;

  const Manifest& manifest_;
  PieceDecoder decoder_;
  ScratchBytes scratch_;
};

/// One per thread. Memory: what one batch reads, one chunk decoded, and what the batch's wanted rows take.
class BatchReader {
 public:
  using Sink = absl::FunctionRef<absl::Status(const WantedRows& wanted, absl::Span<const std::byte> bytes)>;

  BatchReader(Storage& storage, const Manifest& manifest, const StoredChunks& chunks, PlaceFn place = nullptr)
      : storage_(storage), manifest_(manifest), chunks_(chunks), place_of_(std::move(place)), decoder_(manifest) {}

  /// Gives each of batch.wanted to `sink`: the planes of its rows, one after the other; no bytes if it was put where
  /// `place` said.
  absl::Status Run(const ReadBatch& batch, Sink sink);

 private:
  /// Bytes of a file that go where they belong at once.
  struct Direct {
    int shard = 0;
    uint64_t offset = 0;
    absl::Span<std::byte> to;
  };

  void FindPlaces(const ReadBatch& batch);
  absl::Status ReadRanges(const ReadBatch& batch);
  std::vector<absl::Span<std::byte>> Scatter(const FileRange& range, std::byte* scratch) const;
  absl::Span<const std::byte> Piece(const ReadBatch& batch, int shard, const StoredPiece& piece) const;
  absl::Status Use(const ReadBatch& batch, size_t read_index, Sink sink);

  /// Of the rows in canonical form: how many bytes one plane takes, and how many planes there are.
  size_t PlaneBytes(const WantedRows& wanted) const;
  size_t NumPlanes(const WantedRows& wanted) const;

  Storage& storage_;
  const Manifest& manifest_;
  const StoredChunks& chunks_;
  const PlaceFn place_of_;
  ChunkDecoder decoder_;
  std::vector<ChunkPlaces> direct_places_;  // of each of batch.reads
  std::vector<Direct> direct_;              // the same, by place in the files
  ScratchBytes read_, assembled_;
  std::vector<const std::byte*> range_data_;  // of each of batch.ranges
  std::vector<std::byte*> place_;             // of each of batch.wanted; null if a stored chunk is just that
};

}  // namespace holdfast
