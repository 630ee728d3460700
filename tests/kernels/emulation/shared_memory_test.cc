// Proves what a GPU with less shared memory than Hopper has does: of rows of logits that do not fit it makes the same
// bits another way; what it cannot run it says by name, and how much attention takes is known before. Also that a row's
// bits do not depend on which other rows its block has.

#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/attention_limits.h"
#include "tests/kernels/attention_test_util.h"
#include "tests/kernels/emulation/emulated_queue.h"
#include "tests/kernels/emulation/emulator.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

class SharedMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kAda = 99 << 10;  // compute capability 8.6, 8.9 and 12.0

  ~SharedMemoryTest() override {
    emulation::MaxSharedBytes() = emulation::kHopperSharedBytes;
    emulation::Multiprocessors() = emulation::kFewMultiprocessors;
  }
};

enum class Gradients { kOverLogits, kApart, kNone };

/// Losses, what is where the logits were, and gradients that are elsewhere.
std::vector<float> LossesAndGradients(DType dtype, const TestMatrix& logits, const std::vector<int32_t>& targets,
                                      Gradients where) {
  TestOps ops(1);
  TestMatrix over = logits, apart(dtype, logits.rows(), logits.cols(), logits.view().stride);
  Matrix gradient = apart.view();
  if (where == Gradients::kNone) gradient = {};
  if (where == Gradients::kOverLogits) {
    gradient = over.view();
    gradient.dtype = dtype;
    gradient.stride = gradient.stride * 4 / static_cast<int64_t>(SizeOf(dtype));
  }
  std::vector<float> all(targets.size());
  ops->SoftmaxCrossEntropy(all.data(), gradient, over.view(), targets.data(), 0.125f);
  EXPECT_TRUE(over.PaddingIntact() && apart.PaddingIntact());
  for (const TestMatrix& matrix : {over, apart}) {
    const std::vector<float> values = matrix.Values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_F(SharedMemoryTest, RowsOfLogitsThatDoNotFitHaveTheSameBits) {
  Rng rng(NewSeed());
  for (const int64_t cols : {25'000, 25'100, 50'257, 57'600, 57'900}) {  // around what fits into each
    TestMatrix logits(DType::kF32, 3, cols, cols + 3);
    logits.Fill(rng, 4.0f);
    const std::vector<int32_t> targets{3, -1, static_cast<int32_t>(cols - 1)};
    for (const DType dtype : kDTypes) {
      emulation::MaxSharedBytes() = emulation::kHopperSharedBytes;
      const std::vector<float> expected = LossesAndGradients(dtype, logits, targets, Gradients::kOverLogits);
      emulation::MaxSharedBytes() = kAda;
      const std::vector<float> actual = LossesAndGradients(dtype, logits, targets, Gradients::kOverLogits);
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << cols;
    }
  }
}

TEST_F(SharedMemoryTest, RowsOfLogitsHaveTheSameBitsWithOthersInTheirBlock) {
  Rng rng(NewSeed());
  emulation::MaxSharedBytes() = kAda;
  for (const int64_t cols : {130, 4'099, 25'088, 25'089, 33'000}) {  // the third just fits, the others have rests
    // The last has rows that are no multiple of 16 bytes apart.
    for (const int64_t stride : {(cols + 7) / 4 * 4, cols + 1 + cols % 2}) {
      TestMatrix logits(DType::kF32, 7, cols, stride);
      logits.Fill(rng, 4.0f);
      const std::vector<int32_t> targets{-1, 3, -1, -1, static_cast<int32_t>(cols - 1), 0, -1};
      for (const auto& [dtype, where] : {std::pair{DType::kF32, Gradients::kOverLogits},
                                         {DType::kBF16, Gradients::kOverLogits},
                                         {DType::kBF16, Gradients::kApart},
                                         {DType::kBF16, Gradients::kNone}}) {
        emulation::Multiprocessors() = 132;  // a block for each row
        const std::vector<float> expected = LossesAndGradients(dtype, logits, targets, where);
        for (const int multiprocessors : {1, 2}) {
          emulation::Multiprocessors() = multiprocessors;
          const std::vector<float> actual = LossesAndGradients(dtype, logits, targets, where);
          EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0)
              << cols << " by " << multiprocessors;
        }
      }
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

TEST_F(SharedMemoryTest, AttentionTakesAsMuchAsIsSaid) {
  constexpr int64_t kRows = 5;
  for (const DType dtype : kDTypes) {
    for (const int64_t head_dim : {8, 64, 72, 96, 104, 128, 136, 256}) {
      const AttentionShape shape = attention_test::Shape(1, kRows, 1, 1, head_dim);
      TestMatrix qkv(dtype, kRows, 3 * head_dim), out(dtype, kRows, head_dim), d_qkv = qkv;
      Rng rng(1);
      qkv.Fill(rng);
      std::vector<float> lse(kRows);
      const auto failure_with = [&](size_t shared_bytes) {
        emulation::MaxSharedBytes() = shared_bytes;
        RecordingQueue queue;
        const auto ops = MakeCudaOps(queue);
        ops->AttentionForward(out.view(), lse.data(), qkv.view(), shape);
        EXPECT_EQ(queue.failure, "") << "evaluation takes less";
        ops->AttentionBackward(d_qkv.view(), out.view(), out.view(), lse.data(), qkv.view(), shape);
        return queue.failure;
      };
      const size_t bytes = AttentionSharedBytes(dtype, head_dim);
      EXPECT_EQ(failure_with(bytes), "") << head_dim;
      EXPECT_THAT(failure_with(bytes - 1), ::testing::HasSubstr("AttentionBackward: a block")) << head_dim;
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
