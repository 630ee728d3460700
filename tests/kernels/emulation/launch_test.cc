// Proves that a kernel that cannot be started is reported once, by its operation's name, and is not taken for a failure
// of what comes next.

#include "kernels/cuda/launch.cuh"

#include <gtest/gtest.h>

#include <string>

namespace holdfast::kernels {
namespace {

class RecordingQueue final : public CudaQueue {
 public:
  CUstream_st* stream() const override { return nullptr; }
  void* Scratch(size_t) override { return nullptr; }
  void Fail(const char* operation, const char*) override { failed += operation; }

  std::string failed;
};

__global__ void CountBlock(int* blocks) { *blocks += threadIdx.x == 0 ? 1 : 0; }

TEST(Launch, ReportsWhatTheGpuDoesNotTakeAndNothingAfterIt) {
  RecordingQueue queue;
  int blocks = 0;
  Launch(queue, "TooManyThreads", {.blocks = 2, .threads = 2048}, CountBlock, &blocks);
  EXPECT_EQ(queue.failed, "TooManyThreads");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  Launch(queue, "Two", {.blocks = 2, .threads = 32}, CountBlock, &blocks);
  EXPECT_EQ(queue.failed, "TooManyThreads");
  EXPECT_EQ(blocks, 2);
}

}  // namespace
}  // namespace holdfast::kernels
