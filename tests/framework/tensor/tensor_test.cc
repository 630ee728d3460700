// Proves shapes, views and the arena: alignment, stack discipline, and that a counting arena learns the peak a real one
// then holds; that a full device says who holds its memory; that a GPU of another name is given no peak; what a CPU
// is called.

#include "framework/tensor/tensor.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/out_of_memory.h"
#include "framework/tensor/gpu_peaks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Shape, FlattensAllButTheLastDimension) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(Shape({7}).rows(), 1);
  EXPECT_EQ(shape.ToString(), "[2, 3, 5]");
  EXPECT_NE(shape, Shape({6, 5}));
}

TEST(CpuDevice, IsCalledByAnInstructionSetThatCanBeChosenInAnyCase) {
  for (const std::string& set : kernels::CpuInstructionSets()) {
    EXPECT_NE(set, "AVX3") << "AVX-512";
    std::string lower = set;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const std::string& name : {set, lower}) {
      ASSERT_TRUE(kernels::UseCpuInstructionSet(name)) << name;
      EXPECT_THAT(MakeCpuDevice(1)->name(), HasSubstr("cpu (" + set + ", "));
    }
  }
  EXPECT_FALSE(kernels::UseCpuInstructionSet("AVX"));
  ASSERT_TRUE(kernels::UseCpuInstructionSet(""));
}

TEST(Buffer, MovesOwnership) {
  const auto device = MakeCpuDevice(1);
  Buffer a = Buffer::Allocate(*device, 100, "tests").value();
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
}

TEST(Buffer, TooMuchMemoryIsAnErrorThatNamesTheLargestHolders) {
  constexpr size_t kMiB = size_t{1} << 20, kTooMuch = size_t{1} << 60;
  const auto device = MakeCpuDevice(1);
  EXPECT_THAT(Buffer::Allocate(*device, kTooMuch, "weights").status().message(), HasSubstr("are: nothing"));
  Buffer gone = Buffer::Allocate(*device, 900 * kMiB, "gradients").value();  // its pages are never touched
  std::vector<Buffer> held;
  held.push_back(Buffer::Allocate(*device, 64 * kMiB, "weights").value());
  for (int i = 0; i < 2; ++i) held.push_back(Buffer::Allocate(*device, 256 * kMiB, "AdamW moments").value());
  held.push_back(Buffer::Allocate(*device, 128 * kMiB, "activations").value());
  held.push_back(Buffer::Allocate(*device, kMiB, "tokens").value());
  gone = Buffer();
  const absl::Status status = Buffer::Allocate(*device, kTooMuch, "gathered weights").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOutOfMemory(status));
  EXPECT_THAT(status.message(), HasSubstr("this was for gathered weights; the largest holders are: AdamW moments "
                                          "512.0 MiB, activations 128.0 MiB, weights 64.0 MiB"));
  EXPECT_THAT(status.message(), Not(HasSubstr("tokens")));
}

TEST(MemoryAccount, CountsWhatManyThreadsTakeAndGiveBack) {
  MemoryAccount account;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&account] {
        for (int i = 0; i < 1000; ++i) {
          account.Take("a", size_t{1} << 20);
          account.Take("b", 7);
          account.GiveBack("b", 7);
        }
      });
    }
  }
  EXPECT_EQ(account.LargestHolders(), "a 3.9 GiB");
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

}  // namespace
}  // namespace holdfast
