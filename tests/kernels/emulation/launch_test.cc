// Proves that a kernel that cannot be started is reported once, by its operation's name, and is not taken for a failure
// of what comes next; that one whose shared memory fits only if it asks does; that a GPU without memory to load
// Hopper's kernels is not taken for one of another model, whose kernels have other bits, nor one without memory to load
// any for one that this build has none for; and that another number of threads of the test device is another order of a
// kernel's threads.

#include "kernels/cuda/launch.cuh"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/gemm_finish.h"
#include "tests/kernels/emulation/emulator.h"
#include "tests/kernels/kernel_test_util.h"

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

TEST(Launch, AsksForSharedMemoryThatLeavesNoRoomForTheKernelsOwn) {
  RecordingQueue queue;
  int blocks = 0;
  Launch(queue, "AllWithoutAsking", {.blocks = 1, .threads = 32, .shared_bytes = 48 << 10}, CountBlock, &blocks);
  EXPECT_EQ(queue.failed, "");
  EXPECT_EQ(blocks, 1);
}

TEST(Launch, WithoutMemoryForHoppersKernelsTheQueueFails) {
  const auto failed = [] {
    RecordingQueue queue;
    MakeCudaOps(queue);
    return queue.failed;
  };
  EXPECT_EQ(failed(), "");  // a GPU of another model, too
  emulation::LacksMemory() = true;
  EXPECT_EQ(failed(), "loading attention's kernels");
  emulation::LacksMemory() = false;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Launch, KernelsThatCannotBeLoadedAreNotTakenForMissingOnes) {
  const auto error = [] {
    std::string text;
    EXPECT_FALSE(HasKernelsForThisGpu(text));
    return text;
  };
  EXPECT_EQ(error(), "");  // the emulated GPU says of every kernel that it has none, but as a Hopper
  emulation::LacksMemory() = true;
  EXPECT_EQ(error(), "emulated");
  emulation::LacksMemory() = false;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

__global__ void NoteThread(int* next, unsigned* order) { order[(*next)++] = blockIdx.x * blockDim.x + threadIdx.x; }

std::vector<unsigned> OrderOn(int num_threads) {
  const auto device = MakeTestDevice(num_threads);
  device->ops();
  RecordingQueue queue;
  int next = 0;
  std::vector<unsigned> order(4 * 64);
  Launch(queue, "NoteThread", {.blocks = 4, .threads = 64}, NoteThread, &next, order.data());
  return order;
}

TEST(Launch, TheTestDevicesNumberOfThreadsIsAnOrderOfThreads) {
  EXPECT_EQ(OrderOn(1), OrderOn(1));
  EXPECT_NE(OrderOn(1), OrderOn(2));
}

}  // namespace
}  // namespace holdfast::kernels
