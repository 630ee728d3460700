// Proves shapes, views and the arena: alignment, stack discipline, and that a counting arena learns the peak a real one
// then holds; and that a GPU of another name is given no peak.

#include "framework/tensor/tensor.h"

#include <cstdint>
#include <cstring>

#include "framework/tensor/gpu_peaks.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(Shape, FlattensAllButTheLastDimension) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(Shape({7}).rows(), 1);
  EXPECT_EQ(shape.ToString(), "[2, 3, 5]");
  EXPECT_NE(shape, Shape({6, 5}));
}

TEST(Buffer, MovesOwnership) {
  const auto device = MakeCpuDevice(1);
  Buffer a = Buffer::Allocate(*device, 100).value();
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
}

TEST(Buffer, TooMuchMemoryIsAnErrorAndNotTheEnd) {
  const auto device = MakeCpuDevice(1);
  const auto buffer = Buffer::Allocate(*device, size_t{1} << 60);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Arena, CountingLearnsThePeakOfTheRealOne) {
  const auto device = MakeCpuDevice(1);
  const auto use = [](Arena& arena) {
    const Tensor a = arena.Allocate(DType::kF32, {3, 5});
    {
      ArenaScope scope(arena);
      arena.Allocate(DType::kBF16, {1000});
    }
    return std::pair(a, arena.Allocate(DType::kBF16, {7}));
  };
  Arena counting = Arena::Counting();
  EXPECT_EQ(use(counting).first.data, nullptr);
  EXPECT_EQ(counting.peak_bytes(), 64u + 2048u);

  Arena real = Arena::Create(*device, counting.peak_bytes()).value();
  const auto [a, b] = use(real);
  EXPECT_EQ(static_cast<char*>(b.data) - static_cast<char*>(a.data), 64);
  EXPECT_EQ(real.peak_bytes(), counting.peak_bytes());
}

TEST(ArenaDeathTest, ExceedingThePlanIsABug) {
  const auto device = MakeCpuDevice(1);
  Arena arena = Arena::Create(*device, 64).value();
  arena.Allocate(DType::kF32, {16});
  EXPECT_DEATH(arena.Allocate(DType::kF32, {1}), "check failed");
}

TEST(GpuPeaks, AreOfWholeNamesOnly) {
  EXPECT_EQ(PeakBf16Flops("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(PeakBf16Flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(PeakBf16Flops("NVIDIA A100-SXM4-80GB"), 312e12);
  for (const char* other : {"", "NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GH200 480GB",
                            "NVIDIA GeForce RTX 4090 Laptop GPU", "cpu (AVX2, 2 threads)"}) {
    EXPECT_EQ(PeakBf16Flops(other), 0) << other;
  }
  EXPECT_EQ(MakeCpuDevice(1)->peak_bf16_flops(), 0);
}

TEST(Tensor, RowRangeIsAViewOfItsRows) {
  float values[6] = {0, 1, 2, 3, 4, 5};
  const Tensor tensor{values, DType::kF32, {3, 2}};
  const kernels::Matrix rows = tensor.RowRange(1, 2);
  EXPECT_EQ(static_cast<float*>(rows.data)[0], 2);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_EQ(rows.cols, 2);
}

}  // namespace
}  // namespace holdfast
