#pragma once
// How a whole checkpoint is read once to check both digests of its bytes: the files' and the chunks'. Pure.

#include <cstdint>
#include <vector>

#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"

namespace holdfast {

/// Bytes of a file, and the chunks that lie in them with all their pieces.
struct VerifySegment {
  int file = 0;    // in VerifyPlan::files
  int number = 0;  // of this segment in its file
  uint64_t offset = 0, size = 0;
  std::vector<ChunkRef> chunks = {};
};

struct VerifyPlan {
  std::vector<StoredFile> files;        // shards' data files first, in their order; then indexes; then the model file
  std::vector<VerifySegment> segments;  // by file and offset; each file's cover it
  std::vector<ChunkRef> scattered;      // chunks whose pieces lie too far from each other to be in one segment
};

/// Segments of about `segment_bytes`.
VerifyPlan PlanVerify(const Manifest& manifest, const StoredChunks& chunks, uint64_t segment_bytes);

}  // namespace holdfast
