// CUDA's operations, emulated, for the tests of tests/kernels.

#include "tests/kernels/emulation/emulated_queue.h"
#include "tests/kernels/emulation/emulator.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

// A GPU's threads are as many as a kernel says: another number stands for another order of them.
class EmulatedDevice final : public TestDevice {
 public:
  explicit EmulatedDevice(int num_threads) : seed_(static_cast<uint32_t>(num_threads)), ops_(MakeCudaOps(queue_)) {}
  Ops& ops() override {
    emulation::OrderSeed() = seed_;
    return *ops_;
  }
  void Synchronize() override {}
  std::span<const int> thread_counts() const override {
    static constexpr int kOther[] = {2};
    return kOther;
  }

 private:
  uint32_t seed_;
  EmulatedQueue queue_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

std::unique_ptr<TestDevice> MakeTestDevice(int num_threads) { return std::make_unique<EmulatedDevice>(num_threads); }

}  // namespace holdfast::kernels
