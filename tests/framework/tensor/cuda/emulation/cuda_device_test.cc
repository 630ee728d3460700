// Proves on an emulated CUDA runtime what one GPU cannot show, or only if it breaks: that no thread takes memory of
// another GPU than the device's, whichever call is its first; that a GPU that is lost ends the process, in which
// nothing would go well any more, and another error does not; that working memory which fits once, but not with room to
// grow, is taken; that a lack of it is told as one; that heads for which a GPU has too little shared memory are refused
// before it is used; and that a GPU whose kernels cannot be loaded is not taken for one that has none.

#include "framework/tensor/cuda_device.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/out_of_memory.h"
#include "kernels/cuda/attention_limits.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_finish.h"
#include "kernels/forwarding_ops.h"

namespace holdfast {
namespace kernels {
namespace {

/// Every operation does nothing, but Zero takes as many bytes of working memory.
class ScratchOps final : public ForwardingOps {
 public:
  explicit ScratchOps(CudaQueue& queue) : queue_(queue) {}
  void Zero(void*, size_t bytes) override { queue_.Scratch(bytes); }

 private:
  void Forward(std::function<void(Ops&)>) override {}

  CudaQueue& queue_;
};

}  // namespace

std::unique_ptr<Ops> MakeCudaOps(CudaQueue& queue, const GemmChoice&) { return std::make_unique<ScratchOps>(queue); }
size_t CublasLtVersion() { return 1; }
std::string NvccVersion() { return "2.3.4"; }
size_t AttentionSharedBytes(DType dtype, int64_t head_dim) {
  return static_cast<size_t>(head_dim) << (dtype == DType::kBF16 ? 10 : 11);
}

bool has_kernels = true;
std::string kernels_error;
bool HasKernelsForThisGpu(std::string& other_error) {
  other_error = kernels_error;
  return has_kernels;
}

}  // namespace kernels

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kGpu = 2;
constexpr size_t kGiB = size_t{1} << 30;

class CudaDeviceTest : public ::testing::Test {
 protected:
  ~CudaDeviceTest() override {
    runtime_.lost = cudaSuccess;
    runtime_.next_malloc = cudaSuccess;
    runtime_.free_bytes = 1024 * kGiB;
    runtime_.shared_bytes = size_t{227} << 10;
  }

  EmulatedRuntime& runtime_ = EmulatedRuntime::Get();
  const std::unique_ptr<Device> device_ = MakeCudaDevice(kGpu).value();
};

TEST_F(CudaDeviceTest, NoThreadTakesMemoryOfAnotherGpu) {
  std::unique_ptr<Stream> stream = device_->CreateStream().value();
  void* const memory = device_->Allocate(1).value();
  void* const other = device_->Allocate(1).value();
  void* const pinned = device_->AllocateCpu(1).value();
  void* const other_pinned = device_->AllocateCpu(1).value();
  std::shared_ptr<Event> event = stream->Record();
  char byte = 1;
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"IsDeviceOnly", [&] { EXPECT_TRUE(device_->IsDeviceOnly(memory)); }},
      {"IsDeviceOnly of the CPU's", [&] { EXPECT_FALSE(device_->IsDeviceOnly(&byte)); }},
      {"CopyFromCpu", [&] { device_->CopyFromCpu(memory, &byte, 1); }},
      {"CopyToCpu", [&] { device_->CopyToCpu(&byte, memory, 1); }},
      {"Allocate", [&] { device_->Free(device_->Allocate(1).value(), 1); }},
      {"Free", [&] { device_->Free(other, 1); }},
      {"AllocateCpu", [&] { device_->FreeCpu(device_->AllocateCpu(1).value()); }},
      {"FreeCpu", [&] { device_->FreeCpu(other_pinned); }},
      {"CreateStream", [&] { EXPECT_TRUE(device_->CreateStream().ok()); }},
      {"Wait", [&] { event->Wait(); }},
      {"Record", [&] { stream->Record()->Wait(); }},
      {"Stream::CopyToCpu", [&] { stream->CopyToCpu(&byte, memory, 1); }},
      {"Scratch", [&] { stream->ops().Zero(nullptr, 1); }},
      {"Synchronize", [&] { EXPECT_TRUE(stream->Synchronize().ok()); }},
      {"~Stream", [&] { stream.reset(); }},
      {"~Event", [&] { event.reset(); }}};
  for (const auto& [name, call] : calls) {
    runtime_.contexts.clear();
    std::thread(call).join();
    for (const int gpu : runtime_.contexts) EXPECT_EQ(gpu, kGpu) << name;
  }
  device_->Free(memory, 1);
  device_->FreeCpu(pinned);
}

TEST_F(CudaDeviceTest, AGpuThatIsLostEndsTheProcess) {
  const char here = 0;
  const auto lose = [&] { runtime_.lost = cudaErrorIllegalAddress; };
  EXPECT_DEATH((lose(), device_->Allocate(1).IgnoreError()), "cannot allocate memory of cuda:2.*illegal memory access");
  // Else memory of the GPU would be taken for the CPU's, and read there.
  EXPECT_DEATH((lose(), device_->IsDeviceOnly(&here)), "cannot ask about memory of cuda:2.*illegal memory access");
}

TEST_F(CudaDeviceTest, AnotherErrorDoesNot) {
  runtime_.next_malloc = cudaErrorInvalidValue;
  EXPECT_EQ(device_->Allocate(1).status().code(), absl::StatusCode::kInternal);
  void* const memory = device_->Allocate(1).value();
  device_->Free(memory, 1);
}

TEST_F(CudaDeviceTest, ArithmeticNamesAllThatDecidesBits) {
  EXPECT_EQ(device_->arithmetic(), "Emulated GPU, 132 multiprocessors, cuBLASLt 1, nvcc 2.3.4");
}

TEST_F(CudaDeviceTest, HeadsThatDoNotFitAreRefusedWithoutTakingTheGpu) {
  EXPECT_TRUE(CheckCudaHeads(kGpu, kernels::DType::kBF16, 128).ok());
  runtime_.shared_bytes = size_t{99} << 10;
  runtime_.contexts.clear();
  const absl::Status bf16 = CheckCudaHeads(kGpu, kernels::DType::kBF16, 128);
  EXPECT_TRUE(absl::IsFailedPrecondition(bf16)) << bf16;
  EXPECT_EQ(bf16.message(),
            "model.head_dim: a block of the kernel that trains attention with heads of 128 takes 128 KiB of shared "
            "memory, of which cuda:2 (Emulated GPU, 1024 GiB) has 99 KiB: it trains heads of up to 96 with "
            "train.compute_dtype: bf16, and of up to 48 with f32; take a GPU with more of it, or train.device: cpu");
  EXPECT_TRUE(CheckCudaHeads(kGpu, kernels::DType::kBF16, 96).ok());
  EXPECT_FALSE(CheckCudaHeads(kGpu, kernels::DType::kF32, 64).ok());
  EXPECT_TRUE(runtime_.contexts.empty());
}

TEST_F(CudaDeviceTest, OnlyABuildWithoutKernelsIsToldAsOne) {
  kernels::has_kernels = false;
  const absl::Status none = MakeCudaDevice(kGpu).status();
  kernels::kernels_error = "out of memory";
  const absl::Status other = MakeCudaDevice(kGpu).status();
  kernels::has_kernels = true;
  kernels::kernels_error.clear();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("there are no kernels for Emulated GPU"));
  EXPECT_TRUE(absl::IsInternal(other)) << other;
  EXPECT_EQ(other.message(), "cannot load kernels on cuda:2 (Emulated GPU, 1024 GiB): out of memory");
}

TEST_F(CudaDeviceTest, ALackOfPinnedMemoryIsToldAsOne) {
  const absl::Status status = device_->AllocateCpu(1024 * kGiB).status();
  EXPECT_TRUE(IsOutOfMemory(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1.0 TiB"));
}

TEST_F(CudaDeviceTest, WorkingMemoryGrowsInFewStepsWhereThereIsRoom) {
  const std::unique_ptr<Stream> stream = device_->CreateStream().value();
  stream->ops().Zero(nullptr, 3 * kGiB);
  stream->ops().Zero(nullptr, 4 * kGiB);
  EXPECT_EQ(stream->scratch_bytes(), 6 * kGiB);
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST_F(CudaDeviceTest, WorkingMemoryThatFitsOnceIsTaken) {
  runtime_.free_bytes = 5 * kGiB;
  {
    const std::unique_ptr<Stream> stream = device_->CreateStream().value();
    stream->ops().Zero(nullptr, 3 * kGiB);
    stream->ops().Zero(nullptr, 4 * kGiB);
    EXPECT_EQ(stream->scratch_bytes(), 4 * kGiB);
    EXPECT_TRUE(stream->Synchronize().ok());
  }
  EXPECT_EQ(runtime_.free_bytes, 5 * kGiB);
}

TEST_F(CudaDeviceTest, ALackOfWorkingMemoryIsToldAsOne) {
  runtime_.free_bytes = 5 * kGiB;
  const std::unique_ptr<Stream> stream = device_->CreateStream().value();
  stream->ops().Zero(nullptr, 6 * kGiB);
  const absl::Status status = stream->Synchronize();
  EXPECT_TRUE(IsOutOfMemory(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("6.0 GiB wanted"));
  stream->ops().Zero(nullptr, 7 * kGiB);
  EXPECT_EQ(stream->Synchronize(), status) << "the first failure is the one that is told";
}

}  // namespace
}  // namespace holdfast
