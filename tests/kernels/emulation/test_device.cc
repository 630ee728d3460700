// CUDA's operations, emulated, for the tests of tests/kernels.

#include "tests/kernels/emulation/emulated_queue.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

class EmulatedDevice final : public TestDevice {
 public:
  EmulatedDevice() : ops_(MakeCudaOps(queue_)) {}
  Ops& ops() override { return *ops_; }
  void Synchronize() override {}

 private:
  EmulatedQueue queue_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

std::unique_ptr<TestDevice> MakeTestDevice(int) { return std::make_unique<EmulatedDevice>(); }

}  // namespace holdfast::kernels
