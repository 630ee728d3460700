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

class SnapshotCapture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(state_.ok()) << state_.status();
    state_->Initialize(1);
    chunks_.resize(layout_.chunks().size());
    std::iota(chunks_.begin(), chunks_.end(), 0);
    for (const Chunk& chunk : layout_.chunks()) largest_ = std::max(largest_, planes_.ChunkBytes(chunk));
  }
  /// Of everything, with copies in the memory of `device`.
  std::unique_ptr<Snapshot> Take(Device& device) {
    return std::make_unique<Snapshot>(Snapshot::Dependencies{.state = &*state_,
                                                             .reading = reading_.get(),
                                                             .updating = updating_.get(),
                                                             .memory = CpuBlocks::Create(device, largest_)},
                                      chunks_, size_t{1} << 30);
  }

  const ParameterLayout layout_ = LayoutOfThreeUnits();
  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  const std::unique_ptr<Stream> updating_ = device_->CreateStream().value(), reading_ = device_->CreateStream().value();
  const Placement placement_{{"a"}, {}};
  const ShardMap map_{layout_, DType::kBF16, placement_};
  const StateLayout planes_ = LayoutOf(*MakeOptimizer({}), layout_);
  absl::StatusOr<ShardedState> state_ =
      ShardedState::Create(map_, planes_, {.rank = 0, .whole_units = true, .cpu = {}}, *device_, *updating_);
  std::vector<int> chunks_;
  size_t largest_ = 0;
};

TEST_F(SnapshotCapture, EverythingIsCopiedOfEveryUnit) {
  std::map<int, uint64_t> expected, read;
  for (const int c : chunks_) expected[c] = state_->ChunkDigest(c);
  const auto snapshot = Take(*device_);
  const auto first = snapshot->Next();  // one is read before
  ASSERT_TRUE(first.has_value());
  read[first->chunk] = first->digest;
  snapshot->CaptureAll();
  const std::vector<std::byte> other(largest_, std::byte{0x55});
  for (const int c : chunks_) state_->WriteChunk(c, other.data());
  while (const auto chunk = snapshot->Next()) {
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

TEST_F(SnapshotCapture, WithoutMemoryForACopyItIsAbandonedAndNobodyWaits) {
  for (const bool by_update : {false, true}) {
    WithoutCpuMemory memory;
    const auto snapshot = Take(memory);
    const auto first = snapshot->Next();
    ASSERT_TRUE(first.has_value());
    if (by_update) snapshot->CaptureAll();
    EXPECT_FALSE(snapshot->Next().has_value());
    EXPECT_TRUE(snapshot->lacked_memory());
    EXPECT_TRUE(snapshot->abandoned());
    snapshot->CaptureAll();
    snapshot->Abandon();  // returns
  }
}

}  // namespace
}  // namespace holdfast
