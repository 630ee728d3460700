// Proves that a lack of memory in a thread of the pipeline is an error of its caller's, who still has what training
// needs, and neither the end of the process nor a wait without end.

#include "checkpoint/sharded/shard_pipeline.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "framework/base/out_of_memory.h"

namespace holdfast {
namespace {

constexpr size_t kPipelinedBytes = 64;

ChunkInFlight InFlight(size_t position, size_t num_pieces = 1) {
  CpuBytes bytes(kPipelinedBytes);
  std::memset(bytes.data(), 0, kPipelinedBytes);
  return {.position = position, .num_pieces = num_pieces, .bytes = std::move(bytes)};
}

TEST(ShardPipelineTest, NoMemoryWhileWritingIsAnError) {
  ShardPipeline pipeline({.threads = 2, .queue_bytes = 2 * kPipelinedBytes},
                         [](const ChunkInFlight&) -> absl::Status { throw std::bad_alloc(); });
  absl::Status added;
  for (size_t i = 0; i < 100 && added.ok(); ++i) added = pipeline.Add(InFlight(i));
  EXPECT_TRUE(IsOutOfMemory(added)) << added;
  EXPECT_TRUE(IsOutOfMemory(pipeline.Finish()));
}

TEST(ShardPipelineTest, NoMemoryWhileEncodingIsAnError) {
  ShardPipeline pipeline({.threads = 2, .queue_bytes = 2 * kPipelinedBytes},
                         [](const ChunkInFlight&) { return absl::OkStatus(); });
  EXPECT_TRUE(pipeline.Add(InFlight(0, std::numeric_limits<size_t>::max())).ok());
  EXPECT_TRUE(IsOutOfMemory(pipeline.Finish()));
}

}  // namespace
}  // namespace holdfast
