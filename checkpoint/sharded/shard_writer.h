#pragma once
// Writes one rank's part of a checkpoint: chunks in, a durable shard file and its index out.
//
//   ASSIGN_OR_RETURN(auto writer, ShardWriter::Create(storage, options, layout, chunks));
//   while (...) RETURN_IF_ERROR(writer->Add({.chunk = c, .bytes = std::move(bytes), .digest = digest}));
//   ASSIGN_OR_RETURN(ShardReport report, writer->Commit());   // synced, read back and compared
//
// Compression runs on threads of its own; one thread writes, so HDF5's lock is never waited for. Thread-safety: none.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/nn/state_layout.h"
#include "framework/storage/storage.h"
#include "framework/tensor/cpu_bytes.h"

namespace holdfast {

enum class Compression : uint8_t { kNone, kZstd };

struct ShardWriterOptions {
  CheckpointName checkpoint;
  int shard = 0, num_shards = 1;
  Compression compression = Compression::kNone;
  int level = 1;                  // of zstd
  int threads = 1;                // that compress
  size_t queue_bytes = 64 << 20;  // what may wait between Add and the file
};

/// A chunk's planes, one after the other: fp32, little-endian.
struct CapturedChunk {
  int chunk = 0;
  CpuBytes bytes;
  uint64_t digest = 0;  // XXH3-64 of bytes
};

struct ShardReport {
  StoredShard shard;
  int64_t raw_bytes = 0, stored_bytes = 0;  // of values
  // Of the encoding threads together, of the writing thread, of reading back, and of what syncing took beyond that.
  double compress_seconds = 0, write_seconds = 0, verify_seconds = 0, sync_seconds = 0;
};

class ShardWriter {
 public:
  /// `chunks`: indices into layout.parameters().chunks(), ascending: all that will be added. ResourceExhausted if there
  /// is no space.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(Storage& storage, const ShardWriterOptions& options,
                                                             const StateLayout& layout, std::vector<int> chunks);
  virtual ~ShardWriter() = default;  // what was not committed is gone

  /// Waits while too much is queued. DataLoss if the bytes do not have the digest. In any order; each chunk once.
  virtual absl::Status Add(CapturedChunk chunk) = 0;
  /// After all chunks were added. DataLoss if what is read back is not what was written.
  virtual absl::StatusOr<ShardReport> Commit() = 0;
};

}  // namespace holdfast
