// CUDA's operations on a real GPU, for the tests of tests/kernels, which know nothing of it: what they allocate is
// managed memory, which host and GPU both see (operator new below). All skip without a GPU.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <new>

#include "framework/tensor/cuda_device.h"
#include "tests/kernels/kernel_test_util.h"

namespace {

constexpr size_t kHeader = 256;  // before each block: whose it is; keeps the alignment that cudaMalloc gives
constexpr uint64_t kManaged = 0x6d616e61676564;
thread_local bool inside = false;  // CUDA itself allocates, too

bool HasGpu() {
  static const bool has = holdfast::NumCudaDevices() > 0;
  return has;
}

void* Allocate(size_t bytes) {
  void* block = nullptr;
  bool managed = false;
  if (!inside) {
    inside = true;
    managed = HasGpu() && cudaMallocManaged(&block, bytes + kHeader) == cudaSuccess;
    inside = false;
  }
  if (!managed) block = std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader);
  if (block == nullptr) throw std::bad_alloc();
  *static_cast<uint64_t*>(block) = managed ? kManaged : 0;
  return static_cast<char*>(block) + kHeader;
}

void Release(void* data) {
  if (data == nullptr) return;
  void* const block = static_cast<char*>(data) - kHeader;
  if (*static_cast<uint64_t*>(block) == kManaged) {
    cudaFree(block);
  } else {
    std::free(block);
  }
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void operator delete(void* data) noexcept { Release(data); }
void operator delete(void* data, size_t) noexcept { Release(data); }

namespace holdfast::kernels {
namespace {

class GpuTestDevice final : public TestDevice {
 public:
  GpuTestDevice() : device_(MakeCudaDevice(0).value()), stream_(device_->CreateStream().value()) {}
  Ops& ops() override { return stream_->ops(); }
  void Synchronize() override {
    const absl::Status status = stream_->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<TestDevice> MakeTestDevice(int) { return std::make_unique<GpuTestDevice>(); }

}  // namespace holdfast::kernels

// Without a GPU every test says that it was skipped.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && !HasGpu()) {
    std::printf("[  SKIPPED ] no CUDA device\n");
    return 0;
  }
  return RUN_ALL_TESTS();
}
