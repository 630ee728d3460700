// Proves that a snapshot which was told to copy everything needs its state no more: whatever becomes of that, it gives
// the bits of the moment it was made.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "framework/parallel/placement.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/snapshot.h"
#include "tests/framework/train/deferred_device.h"

namespace holdfast {
namespace {

ParameterLayout LayoutOfThreeUnits() {
  std::vector<ParameterSpec> parameters;
  for (int unit = 0; unit < 3; ++unit) {
    ParameterSpec matrix;
    matrix.name = "matrix" + std::to_string(unit);
    matrix.shape = Shape{300, 500};  // several chunks
    matrix.unit = unit;
    parameters.push_back(matrix);
    ParameterSpec vector = matrix;
    vector.name = "vector" + std::to_string(unit);
    vector.shape = Shape{70};
    parameters.push_back(vector);
  }
  return ParameterLayout(std::move(parameters), {"a", "b", "c"});
}

TEST(SnapshotCapture, EverythingIsCopiedOfEveryUnit) {
  const ParameterLayout layout = LayoutOfThreeUnits();
  const auto device = MakeCpuDevice(1);
  const auto updating = device->CreateStream().value(), reading = device->CreateStream().value();
  const Placement placement({"a"}, {});
  const ShardMap map(layout, DType::kBF16, placement);
  const StateLayout planes = LayoutOf(*MakeOptimizer({}), layout);
  auto state = ShardedState::Create(map, planes, {.rank = 0, .whole_units = true, .cpu = {}}, *device, *updating);
  ASSERT_TRUE(state.ok()) << state.status();
  state->Initialize(1);
  std::vector<int> chunks;
  std::map<int, uint64_t> expected, read;
  size_t largest = 0;
  for (int c = 0; c < static_cast<int>(layout.chunks().size()); ++c) {
    chunks.push_back(c);
    expected[c] = state->ChunkDigest(c);
    largest = std::max(largest, planes.ChunkBytes(layout.chunks()[static_cast<size_t>(c)]));
  }
  Snapshot snapshot({.state = &*state,
                     .reading = reading.get(),
                     .updating = updating.get(),
                     .memory = CpuBlocks::Create(*device, largest)},
                    chunks, size_t{1} << 30);
  const auto first = snapshot.Next();  // one is read before
  ASSERT_TRUE(first.has_value());
  read[first->chunk] = first->digest;
  snapshot.CaptureAll();
  const std::vector<std::byte> other(largest, std::byte{0x55});
  for (const int c : chunks) state->WriteChunk(c, other.data());
  while (const auto chunk = snapshot.Next()) {
    EXPECT_FALSE(read.contains(chunk->chunk));
    read[chunk->chunk] = chunk->digest;
  }
  EXPECT_EQ(read, expected);
}

class WithoutCpuMemory final : public DeferredDevice {
 public:
  absl::StatusOr<void*> AllocateCpu(size_t bytes) override {
    if (blocks_left-- <= 0) throw std::bad_alloc();
    return DeferredDevice::AllocateCpu(bytes);
  }
  std::atomic<int> blocks_left{1};
};

TEST(SnapshotCapture, WithoutMemoryForACopyItIsAbandonedAndNobodyWaits) {
  const ParameterLayout layout = LayoutOfThreeUnits();
  const auto device = MakeCpuDevice(1);
  const auto updating = device->CreateStream().value(), reading = device->CreateStream().value();
  const Placement placement({"a"}, {});
  const ShardMap map(layout, DType::kBF16, placement);
  const StateLayout planes = LayoutOf(*MakeOptimizer({}), layout);
  auto state = ShardedState::Create(map, planes, {.rank = 0, .whole_units = true, .cpu = {}}, *device, *updating);
  ASSERT_TRUE(state.ok()) << state.status();
  state->Initialize(1);
  std::vector<int> chunks(layout.chunks().size());
  std::iota(chunks.begin(), chunks.end(), 0);
  size_t largest = 0;
  for (const Chunk& chunk : layout.chunks()) largest = std::max(largest, planes.ChunkBytes(chunk));
  for (const bool by_update : {false, true}) {
    WithoutCpuMemory memory;
    Snapshot snapshot({.state = &*state,
                       .reading = reading.get(),
                       .updating = updating.get(),
                       .memory = CpuBlocks::Create(memory, largest)},
                      chunks, size_t{1} << 30);
    const auto first = snapshot.Next();
    ASSERT_TRUE(first.has_value());
    if (by_update) snapshot.CaptureAll();
    EXPECT_FALSE(snapshot.Next().has_value());
    EXPECT_TRUE(snapshot.lacked_memory());
    EXPECT_TRUE(snapshot.abandoned());
    snapshot.CaptureAll();
    snapshot.Abandon();  // returns
  }
}

}  // namespace
}  // namespace holdfast
