// Proves what a GPU with less shared memory than Hopper has does: of rows of logits that do not fit it makes the same
// bits another way; what it cannot run it says by name.

#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/emulation/emulated_queue.h"
#include "tests/kernels/emulation/emulator.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

class SharedMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kAda = 99 << 10;  // compute capability 8.6, 8.9 and 12.0

  ~SharedMemoryTest() override { emulation::MaxSharedBytes() = emulation::kHopperSharedBytes; }
};

/// Losses, and gradients over the logits.
std::vector<float> LossesAndGradients(DType dtype, const TestMatrix& logits) {
  TestOps ops(1);
  TestMatrix over = logits;
  Matrix gradient = over.view();
  gradient.dtype = dtype;
  gradient.stride = gradient.stride * 4 / static_cast<int64_t>(SizeOf(dtype));
  std::vector<float> losses(static_cast<size_t>(logits.rows()));
  const std::vector<int32_t> targets{3, -1, static_cast<int32_t>(logits.cols() - 1)};
  ops->SoftmaxCrossEntropy(losses.data(), gradient, over.view(), targets.data(), 0.125f);
  std::vector<float> all = over.Values();
  all.insert(all.end(), losses.begin(), losses.end());
  return all;
}

TEST_F(SharedMemoryTest, RowsOfLogitsThatDoNotFitHaveTheSameBits) {
  Rng rng(NewSeed());
  for (const int64_t cols : {25'000, 25'100, 50'257, 57'600, 57'900}) {  // around what fits into each
    TestMatrix logits(DType::kF32, 3, cols, cols + 3);
    logits.Fill(rng, 4.0f);
    for (const DType dtype : kDTypes) {
      emulation::MaxSharedBytes() = emulation::kHopperSharedBytes;
      const std::vector<float> expected = LossesAndGradients(dtype, logits);
      emulation::MaxSharedBytes() = kAda;
      const std::vector<float> actual = LossesAndGradients(dtype, logits);
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << cols;
    }
  }
}

class RecordingQueue final : public EmulatedQueue {
 public:
  void Fail(const char* operation, const char* cause) override { failure += std::string(operation) + ": " + cause; }

  std::string failure;
};

TEST_F(SharedMemoryTest, AttentionThatDoesNotFitSaysSo) {
  emulation::MaxSharedBytes() = kAda;
  RecordingQueue queue;
  const auto ops = MakeCudaOps(queue);
  const AttentionShape shape = attention_test::Shape(1, 64, 1, 1, 128);
  TestMatrix qkv(DType::kF32, 64, 384), out(DType::kF32, 64, 128);
  std::vector<float> lse(64);
  ops->AttentionForward(out.view(), lse.data(), qkv.view(), shape);
  EXPECT_EQ(queue.failure, "");
  ops->AttentionBackward(qkv.view(), out.view(), out.view(), lse.data(), qkv.view(), shape);
  EXPECT_THAT(queue.failure, ::testing::HasSubstr("AttentionBackward: a block of its kernel takes 162 KiB of shared "
                                                  "memory, of which this GPU has 99 KiB"));
}

}  // namespace
}  // namespace holdfast::kernels
