#pragma once
// The datasets of a shard file: one per tensor, kind and range of consecutive rows. A pure function of the shard's
// chunks, so the index alone says which datasets there are and what they are called.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/shard_index.h"

namespace holdfast {

/// Chunks of one size whose rows follow each other in one tensor.
struct ShardRange {
  int32_t tensor = 0;
  int64_t first_row = 0, rows = 0;
  int64_t chunk_rows = 0;             // of each chunk, which is an HDF5 chunk
  size_t first_chunk = 0, count = 0;  // in the shard
  bool only = true;                   // the tensor has no other range in this shard
};

/// `chunks` by tensor and row, without overlap.
std::vector<ShardRange> PlanRanges(absl::Span<const StoredChunk> chunks);

/// "NAME", or "NAME@FIRSTROW" where the tensor has several ranges; in a group called like the kind.
std::string DatasetName(const std::string& tensor, const ShardRange& range);

/// InvalidArgument unless a dataset can be called like this tensor, without being taken for another's.
absl::Status CheckTensorName(absl::string_view name);

/// "shard-3-of-8" + `extension`.
std::string ShardFileName(int shard, int num_shards, absl::string_view extension);

}  // namespace holdfast
