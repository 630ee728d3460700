// CUDA's operations on a real GPU, for the tests of tests/kernels, which know nothing of it: what they allocate is
// pinned memory, which CPU and GPU both see (operator new below). All skip without a GPU.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "framework/tensor/cuda_device.h"
#include "tests/kernels/kernel_test_util.h"

namespace {

bool HasGpu() {
  static const bool has = holdfast::NumCudaDevices() > 0;
  return has;
}

// One allocation, cut into blocks of powers of two: to pin takes long, and to free waits for the GPU.
class PinnedMemory {
 public:
  PinnedMemory() {
    if (!HasGpu()) return;
    void* memory = nullptr;
    if (cudaMallocHost(&memory, kBytes) != cudaSuccess) {
      std::fprintf(stderr, "cannot pin %zu bytes of CPU memory\n", kBytes);
      std::abort();
    }
    begin_ = static_cast<char*>(memory);
  }

  /// Null if there is no GPU.
  void* Take(size_t bytes) {
    if (begin_ == nullptr) return nullptr;
    const size_t size_class = ClassOf(bytes);
    const std::lock_guard lock(mutex_);
    if (free_[size_class] != nullptr) return std::exchange(free_[size_class], *static_cast<void**>(free_[size_class]));
    const size_t size = size_t{1} << size_class;
    if (size > kBytes - used_) {
      std::fprintf(stderr, "the tests need more than %zu bytes of pinned memory\n", kBytes);
      std::abort();
    }
    used_ += size;
    return begin_ + used_ - size;
  }
  bool Owns(const void* block) const {
    return begin_ != nullptr && begin_ <= block && block < static_cast<const void*>(begin_ + kBytes);
  }
  void GiveBack(void* block, size_t bytes) {
    const std::lock_guard lock(mutex_);
    *static_cast<void**>(block) = std::exchange(free_[ClassOf(bytes)], block);
  }

 private:
  static constexpr size_t kBytes = size_t{2} << 30;
  static constexpr size_t kLeast = 512;

  /// The binary logarithm of the block for so many.
  static size_t ClassOf(size_t bytes) { return static_cast<size_t>(std::bit_width(std::max(bytes, kLeast) - 1)); }

  char* begin_ = nullptr;
  size_t used_ = 0;
  std::mutex mutex_;
  std::array<void*, 64> free_ = {};  // lists through the blocks themselves
};

std::atomic<PinnedMemory*> pinned = nullptr;

constexpr size_t kHeader = 256;    // before each block: its size; keeps the alignment that cudaMalloc gives
thread_local bool inside = false;  // CUDA itself allocates, too

void* Allocate(size_t bytes) {
  bytes += kHeader;
  void* block = nullptr;
  if (!std::exchange(inside, true)) {
    if (pinned == nullptr) pinned = new PinnedMemory;
    block = pinned.load()->Take(bytes);
    inside = false;
  }
  if (block == nullptr) block = std::aligned_alloc(kHeader, (bytes + kHeader - 1) / kHeader * kHeader);
  if (block == nullptr) throw std::bad_alloc();
  *static_cast<size_t*>(block) = bytes;
  return static_cast<char*>(block) + kHeader;
}

void Release(void* data) {
  if (data == nullptr) return;
  void* const block = static_cast<char*>(data) - kHeader;
  PinnedMemory* const from = pinned;
  if (from != nullptr && from->Owns(block)) {
    from->GiveBack(block, *static_cast<size_t*>(block));
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
    const bool required = std::getenv("HOLDFAST_REQUIRE_GPU") != nullptr;
    std::printf("[  %s ] no GPU can be used\n", required ? "FAILED " : "SKIPPED");
    return required ? 1 : 0;
  }
  return RUN_ALL_TESTS();
}
