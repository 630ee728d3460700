#pragma once
// The HDF5 side of a shard file: groups, datasets, attributes, and chunks written where the library puts them.
// FORMAT.md describes the result.
//
//   ASSIGN_OR_RETURN(auto file, Hdf5ShardFile::Create(path, header, tensors, chunks));
//   RETURN_IF_ERROR(file->WriteChunk(3, pieces));   // and all others, in any order
//   RETURN_IF_ERROR(file->Close());
//
// Thread-safety: none. Takes Hdf5Lock itself.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/hdf5_driver.h"
#include "checkpoint/sharded/hdf5_library.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/shard_index.h"
#include "checkpoint/sharded/shard_ranges.h"

namespace holdfast {

struct ShardFileHeader {
  CheckpointName checkpoint;
  int shard = 0, num_shards = 1;
  bool compressed = false;  // declares the filters
  int level = 1;            // of zstd, for the record
};

/// A piece as it is to be stored.
struct EncodedPiece {
  absl::Span<const std::byte> bytes;
  bool compressed = false;
};
using EncodedPieces = std::vector<EncodedPiece>;  // by plane of the tensor

class Hdf5ShardFile {
 public:
  /// Into the empty file at `path`. `chunks`: all of the shard, by tensor and row; without pieces as yet.
  static absl::StatusOr<std::unique_ptr<Hdf5ShardFile>> Create(const std::string& path, const ShardFileHeader& header,
                                                               std::vector<StoredTensor> tensors,
                                                               std::vector<StoredChunk> chunks);
  ~Hdf5ShardFile();

  /// Whole HDF5 chunks.
  absl::Status WriteChunk(size_t chunk, const EncodedPieces& pieces);
  /// Also after errors, which it repeats. Nothing else may be called afterwards.
  absl::Status Close();

  /// With the pieces of those that were written.
  const std::vector<StoredChunk>& chunks() const { return chunks_; }
  /// Of the file, for whoever reads or syncs it.
  int fd() const { return sink_->fd(); }

 private:
  struct OpenRange {
    std::vector<Hdf5Dataset> datasets;  // by plane
    size_t chunks_left = 0;
  };

  Hdf5ShardFile(ShardFileHeader header, std::vector<StoredTensor> tensors, std::vector<StoredChunk> chunks);
  absl::Status WriteHeader(const Hdf5Lock& lock);
  absl::Status CreateDatasets(const Hdf5Lock& lock, size_t range);
  absl::StatusOr<Hdf5Dataset> CreateDataset(const Hdf5Lock& lock, const ShardRange& range, hid_t group);
  absl::Status WritePiece(const Hdf5Lock& lock, size_t chunk, size_t plane, const EncodedPiece& piece);

  ShardFileHeader header_;
  std::vector<StoredTensor> tensors_;
  std::vector<StoredChunk> chunks_;
  std::vector<ShardRange> ranges_;
  std::vector<size_t> range_of_chunk_;
  std::vector<OpenRange> open_;  // by range; datasets are open from their first chunk to their last

  std::unique_ptr<Hdf5Sink> sink_;
  Hdf5File file_;
  std::map<std::string, Hdf5Group> groups_;  // by name of the plane
};

/// Format version, step and generation, as attributes of a file.
absl::Status WriteCheckpointAttributes(const Hdf5Lock& lock, hid_t file, const CheckpointName& checkpoint);

}  // namespace holdfast
