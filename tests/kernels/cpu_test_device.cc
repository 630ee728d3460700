// The CPU's operations, for the tests of this folder.

#include "framework/base/thread_pool.h"
#include "tests/kernels/comparing_ops.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

class CpuTestDevice final : public TestDevice {
 public:
  explicit CpuTestDevice(int num_threads) : pool_(num_threads), ops_(MakeCpuOps(pool_)) {}
  Ops& ops() override { return ops_; }
  void Synchronize() override {}

 private:
  ThreadPool pool_;
  ComparingOps ops_;
};

}  // namespace

std::unique_ptr<TestDevice> MakeTestDevice(int num_threads) { return std::make_unique<CpuTestDevice>(num_threads); }

}  // namespace holdfast::kernels
