#pragma once
// Which pieces of which tensors a shard file holds, where, and with which digest: what restoring needs, so that it
// never opens the HDF5 file as such. Binary, little-endian, FORMAT.md shows every byte; the manifest has its digest.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// One stored piece: rows of one plane of one tensor, one HDF5 chunk.
struct StoredPiece {
  uint64_t offset = 0;      // in the shard file
  uint64_t size = 0;        // bytes there, with those of the padding
  bool compressed = false;  // shuffled and compressed with zstd; else plain fp32
  friend bool operator==(const StoredPiece&, const StoredPiece&) = default;
};

using StoredPieces = absl::InlinedVector<StoredPiece, 4>;

/// Whole rows of one tensor, in all its planes.
struct StoredChunk {
  int32_t tensor = 0;  // in the manifest's list
  int64_t first_row = 0, rows = 0;
  int64_t padding_rows = 0;  // rows of zeros that each piece has behind these: written until 2026-11-28
  uint64_t digest = 0;       // XXH3-64 of the fp32 bytes of its planes, one after the other
  StoredPieces pieces = {};  // by plane, in the manifest's order
  friend bool operator==(const StoredChunk&, const StoredChunk&) = default;
};

inline constexpr uint64_t kMaxShardIndexBytes = 256ull << 20;  // of a shard of more than 2 TB

/// `chunks` by tensor and row.
std::string FormatShardIndex(const std::vector<StoredChunk>& chunks);
/// Checks that tensors and rows ascend without overlap, that nothing lies outside a file of `file_size` bytes and that
/// no pieces overlap. DataLoss if the digest does not fit; InvalidArgument, naming the chunk, for everything else.
/// Whether the rows exist in the tensors is for the caller to see, who has the manifest.
absl::StatusOr<std::vector<StoredChunk>> ParseShardIndex(absl::string_view bytes, uint64_t file_size);

}  // namespace holdfast
