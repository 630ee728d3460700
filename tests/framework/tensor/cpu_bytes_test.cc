// Proves that a block of CPU memory is in use until the last copy of it is gone, is then used again, and that where
// the device is the CPU none is kept.

#include "framework/tensor/cpu_bytes.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/framework/train/deferred_device.h"

namespace holdfast {
namespace {

TEST(CpuBytes, ABlockIsUsedAgainWhenItsLastCopyIsGone) {
  DeferredDevice device;
  const auto blocks = CpuBlocks::Create(device, 1000);
  std::optional<CpuBytes> first = blocks->Take(1000);
  std::optional<CpuBytes> copy = first;
  const std::byte* const memory = first->data();
  first.reset();
  EXPECT_NE(blocks->Take(10).data(), memory) << "still in use";
  (*copy)[999] = std::byte{1};
  copy.reset();
  const CpuBytes a = blocks->Take(500), b = blocks->Take(1000);
  EXPECT_EQ(a.size(), 500u);
  EXPECT_NE(a.data(), b.data());
  EXPECT_TRUE(a.data() == memory || b.data() == memory);
}

TEST(CpuBytes, BlocksOutliveWhoeverMadeThem) {
  struct CountingDevice final : DeferredDevice {
    void FreeCpu(void* data) override {
      ++freed;
      DeferredDevice::FreeCpu(data);
    }
    int freed = 0;
  };
  CountingDevice device;
  {
    const CpuBytes bytes = CpuBlocks::Create(device, 64)->Take(64);
    EXPECT_EQ(device.freed, 0);
    bytes[63] = std::byte{1};
  }
  EXPECT_EQ(device.freed, 1);
}

TEST(CpuBytes, OnACpuItIsOrdinaryMemory) {
  const auto device = MakeCpuDevice(1);
  const CpuBytes bytes = CpuBlocks::Create(*device, 64)->Take(8);
  EXPECT_EQ(bytes.size(), 8u);
}

}  // namespace
}  // namespace holdfast
