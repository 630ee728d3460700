#include "checkpoint/sharded/verify_plan.h"

#include <algorithm>
#include <utility>

namespace holdfast {
namespace {

// Where a chunk lies: from its first piece's first byte to its last piece's last.
struct Extent {
  uint64_t begin = 0, end = 0;
  ChunkRef chunk;
};

std::vector<Extent> ExtentsOf(const std::vector<StoredChunk>& chunks, int shard) {
  std::vector<Extent> extents;
  for (size_t c = 0; c < chunks.size(); ++c) {
    Extent extent{.begin = UINT64_MAX, .chunk = {.shard = shard, .chunk = static_cast<int>(c)}};
    for (const StoredPiece& piece : chunks[c].pieces) {
      extent.begin = std::min(extent.begin, piece.offset);
      extent.end = std::max(extent.end, piece.offset + piece.size);
    }
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  return extents;
}

class SegmentPlanner {
 public:
  explicit SegmentPlanner(uint64_t segment_bytes) : segment_bytes_(segment_bytes) {}

  void AddFile(const StoredFile& file, const std::vector<Extent>& extents) {
    current_ = {.file = static_cast<int>(plan.files.size())};
    plan.files.push_back(file);
    for (const Extent& extent : extents) {
      // Not where it would be cut by the segment's begin, nor where the segment would become too long.
      if (extent.begin < current_.offset || extent.end - extent.begin > 2 * segment_bytes_) {
        plan.scattered.push_back(extent.chunk);
        continue;
      }
      GrowTo(extent.begin);
      if (extent.end - current_.offset > segment_bytes_ && current_.size > 0 && End() <= extent.begin) Finish();
      if (extent.end - current_.offset > 3 * segment_bytes_) {  // a chain of chunks that overlap
        plan.scattered.push_back(extent.chunk);
        continue;
      }
      current_.size = std::max(End(), extent.end) - current_.offset;
      current_.chunks.push_back(extent.chunk);
    }
    GrowTo(file.size);
    if (current_.size > 0 || current_.number == 0) Finish();  // an empty file has a segment, too
  }

  VerifyPlan plan;

 private:
  uint64_t End() const { return current_.offset + current_.size; }

  void Finish() {
    VerifySegment next{.file = current_.file, .number = current_.number + 1, .offset = End()};
    plan.segments.push_back(std::exchange(current_, std::move(next)));
  }

  // Bytes without chunks up to `end`.
  void GrowTo(uint64_t end) {
    while (End() < end) {
      if (current_.size >= segment_bytes_) Finish();
      const uint64_t room = current_.size < segment_bytes_ ? segment_bytes_ - current_.size : 0;
      current_.size += std::min(room, end - End());
    }
  }

  uint64_t segment_bytes_;
  VerifySegment current_;
};

}  // namespace

VerifyPlan PlanVerify(const Manifest& manifest, const StoredChunks& chunks, uint64_t segment_bytes) {
  SegmentPlanner planner(segment_bytes);
  for (size_t s = 0; s < manifest.shards.size(); ++s) {
    planner.AddFile(manifest.shards[s].data, ExtentsOf(chunks[s], static_cast<int>(s)));
  }
  for (const StoredShard& shard : manifest.shards) planner.AddFile(shard.index, {});
  planner.AddFile(manifest.model, {});
  return std::move(planner.plan);
}

}  // namespace holdfast
