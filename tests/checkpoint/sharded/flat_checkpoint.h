#pragma once
// Checkpoints made without HDF5 and without our writer: the reader only cares where pieces lie, so a test can lay them
// out as it likes: in any grid, scattered, with gaps and padding, damaged on purpose.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "framework/nn/layout.h"
#include "framework/storage/storage.h"
#include "tests/checkpoint/sharded/three_planes.h"

namespace holdfast {

/// What a test's tensors hold: any element by a formula, compressible as moments are. `kind` is a StateKind.
float TestValue(int tensor, int kind, int64_t element);

/// Weight, exp_avg, exp_avg_sq of these rows, one after the other.
std::vector<std::byte> TestBytes(const std::vector<StoredTensor>& tensors, const WantedRows& rows);

/// Tensors of all shapes that models have: matrices of uneven sizes, rank 1, one row, one column. About `elements`
/// each.
std::vector<StoredTensor> RandomTensors(std::mt19937_64& random, int count, int64_t elements);

/// A matrix and a vector.
inline std::vector<StoredTensor> TwoTensors() { return {{"a", {300, 256}}, {"b", {17}}}; }

ParameterLayout LayoutOf(const std::vector<StoredTensor>& tensors);

/// All rows of all tensors in chunks of random sizes, of at most `max_rows` rows.
std::vector<WantedRows> RandomGrid(std::mt19937_64& random, const std::vector<StoredTensor>& tensors, int64_t max_rows);
/// The layout's own grid.
std::vector<WantedRows> GridOf(const ParameterLayout& layout);

struct FlatOptions {
  int shards = 1;
  bool compressed = false;  // every other piece, where it pays
  bool scattered = false;   // pieces in random order, with gaps and padding
  bool shuffled = false;    // chunks go to random shards instead of contiguous parts
  uint64_t seed = 1;
};

/// A checkpoint before it is stored: everything may still be damaged. Store writes it as it is then.
struct FlatCheckpoint {
  Manifest manifest;
  StoredChunks chunks;
  std::vector<std::string> data;  // of the shard files
  bool keep_digests = false;      // Store does not bring the manifest in line with `data` and `chunks`

  static FlatCheckpoint Make(const CheckpointName& name, const std::vector<StoredTensor>& tensors,
                             const std::vector<WantedRows>& grid, const FlatOptions& options);
  /// Creates all objects; their sizes and digests go into the manifest first.
  absl::Status Store(Storage& storage);
};

/// Where bytes are changed behind the storage's back: deletes the object and creates it again.
void ReplaceObject(Storage& storage, const std::string& name, const std::string& contents);
std::string ObjectText(Storage& storage, const std::string& name);

}  // namespace holdfast
