#pragma once
// Reads checkpoints of any world into any other: which stored pieces make up the rows somebody wants (reshard_plan.h),
// read by ranges, decompressed in parallel, and checked against the digests taken at capture. HDF5 is not involved.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/batch_reader.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "framework/nn/layout.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Thread-safe.
class CheckpointReader {
 public:
  /// Reads manifest and indexes; checks digests and sizes, and that every tensor is covered without hole or overlap.
  /// NotFound: no manifest. DataLoss: something is damaged or missing; the message names the file. The model file is
  /// not asked for: it is for people, and nothing is read from it.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(Storage& storage, const CheckpointName& name);

  const Manifest& manifest() const { return manifest_; }
  /// Stored chunks of each shard.
  const StoredChunks& chunks() const { return chunks_; }

  /// InvalidArgument, naming the first tensor that differs, unless the checkpoint is of a model of this layout.
  absl::Status CheckLayout(const ParameterLayout& layout) const;
  /// The same, and unless its tensors have these planes.
  absl::Status CheckState(const StateLayout& layout) const;

  struct ReadOptions {
    int threads = 2;
    std::stop_token stop = {};                                  // then Cancelled
    std::function<void(uint64_t bytes)> on_progress = nullptr;  // stored bytes read so far; from any thread
    PlaceFn place = nullptr;  // where chunks may be put; what was is given to the sink without bytes
  };
  /// Gives every chunk of `wanted` (indices into layout.chunks()) to `sink`, in any order, from several threads, one
  /// chunk once: its planes in fp32, one after the other. DataLoss names file and tensor. Memory: per
  /// thread about three times 2 MiB, or a stored chunk where that is larger.
  using Sink = absl::FunctionRef<absl::Status(int chunk, absl::Span<const std::byte> bytes)>;
  absl::Status ReadChunks(const ParameterLayout& layout, absl::Span<const int> wanted, const ReadOptions& options,
                          Sink sink) const;

  /// Rows of one plane of a tensor (manifest().tensors); not checked against digests (they cover all), so Verify first.
  absl::Status ReadRows(int tensor, int plane, int64_t first_row, absl::Span<float> out) const;

  /// Reads everything: every file's digest and every chunk's. All problems, each naming its file; empty = valid.
  absl::StatusOr<std::vector<std::string>> Verify(const ReadOptions& options) const;

 private:
  CheckpointReader(Storage& storage, Manifest manifest, StoredChunks chunks)
      : storage_(storage), manifest_(std::move(manifest)), chunks_(std::move(chunks)), by_row_(OrderByRow(chunks_)) {}

  /// Part of a stored chunk's piece: rows [first_row, ...), counted in the tensor, as many as fit in `out`.
  absl::Status ReadPieceRows(ChunkRef ref, size_t plane, int64_t first_row, absl::Span<float> out) const;

  Storage& storage_;
  Manifest manifest_;
  StoredChunks chunks_;
  std::vector<ChunkRef> by_row_;  // all of chunks_
};

}  // namespace holdfast
