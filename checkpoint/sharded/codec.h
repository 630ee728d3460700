#pragma once
// The two forms in which a piece of a tensor is stored: plain fp32, or shuffled (all lowest bytes of the values first,
// then all second ones, ...: HDF5's shuffle filter for 4 bytes) and compressed into one zstd frame (HDF5's registered
// filter 32015). HDF5 tools read both.
//
//   PieceEncoder encoder(/*level=*/1);                        // one per thread: it keeps its buffers
//   const absl::Span<const std::byte> stored = encoder.Compress(values);
//   if (stored.empty()) ...                                   // does not pay: store the values as they are
//   PieceDecoder decoder;
//   RETURN_IF_ERROR(decoder.Decode(stored, /*compressed=*/true, values.size(), out));

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

/// A piece of at most this many bytes, decoded: bounds what a malicious file can make anybody allocate.
inline constexpr size_t kMaxPieceBytes = size_t{64} << 20;

/// Bytes 0, 4, 8, ... of `in`, then 1, 5, 9, ... and so on. Sizes equal and multiples of 4; no overlap.
void ShuffleBytes(absl::Span<const std::byte> in, absl::Span<std::byte> out);
/// The inverse; only the first out.size() bytes of it, a multiple of 4.
void UnshuffleBytes(absl::Span<const std::byte> in, absl::Span<std::byte> out);

/// Thread-safety: none.
class PieceEncoder {
 public:
  explicit PieceEncoder(int level);  // of zstd
  ~PieceEncoder();
  PieceEncoder(const PieceEncoder&) = delete;
  PieceEncoder& operator=(const PieceEncoder&) = delete;

  /// The shuffled and compressed form, valid until the next call; empty unless it is smaller by 3% at least.
  absl::Span<const std::byte> Compress(absl::Span<const std::byte> values);

 private:
  struct Context;
  int level_;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> shuffled_, compressed_;
};

/// Thread-safety: none.
class PieceDecoder {
 public:
  PieceDecoder();
  ~PieceDecoder();
  PieceDecoder(const PieceDecoder&) = delete;
  PieceDecoder& operator=(const PieceDecoder&) = delete;

  /// Fills `out` with the beginning of the piece, which must have exactly `decoded_bytes` bytes: more than `out` where
  /// padding follows (StoredChunk::padding_rows). DataLoss if `stored` is anything but that.
  absl::Status Decode(absl::Span<const std::byte> stored, bool compressed, size_t decoded_bytes,
                      absl::Span<std::byte> out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> shuffled_;
};

}  // namespace holdfast
