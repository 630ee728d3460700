// CUDA's operations, emulated, for the tests of tests/kernels. Matrix products are the CPU's: cuBLASLt is not ours to
// emulate.

#include <deque>

#include "framework/base/thread_pool.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/gemm.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

class EmulatedDevice final : public TestDevice, public CudaQueue {
 public:
  EmulatedDevice() : ops_(MakeCudaOps(*this)) {}
  Ops& ops() override { return *ops_; }
  void Synchronize() override {}

  CUstream_st* stream() const override { return nullptr; }
  int num_multiprocessors() const override { return 3; }
  void* Scratch(size_t bytes) override {
    scratch_.assign(bytes / sizeof(uint64_t) + 64, 0x7fa7a7a77fa7a7a7);
    const auto at = reinterpret_cast<uintptr_t>(scratch_.data());
    return reinterpret_cast<void*>((at + 255) / 256 * 256);
  }
  void Fail(const char* operation, const char* cause) override { ADD_FAILURE() << operation << ": " << cause; }

 private:
  std::vector<uint64_t> scratch_;
  std::unique_ptr<Ops> ops_;
};

class CpuGemm final : public CudaGemm {
 public:
  void Run(const GemmArgs& args) override { ops_->Gemm(args); }

 private:
  ThreadPool pool_{1};
  std::unique_ptr<Ops> ops_ = MakeCpuOps(pool_);
};

}  // namespace

std::unique_ptr<CudaGemm> MakeCudaGemm(CudaQueue&, const GemmChoice&) { return std::make_unique<CpuGemm>(); }
std::unique_ptr<TestDevice> MakeTestDevice(int) { return std::make_unique<EmulatedDevice>(); }

}  // namespace holdfast::kernels
