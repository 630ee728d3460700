#pragma once
// The CPU's operations, for tests of a GPU's to compare with, and whether the latter are on a GPU at all.

#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

#include "framework/base/thread_pool.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

/// HOLDFAST_TEST_DEVICE=cpu: tests of a GPU run on the CPU, to be tried themselves; see gpu_test_device.h.
inline bool TestsRunOnCpu() {
  const char* const device = std::getenv("HOLDFAST_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cpu";
}

class CpuReference final : public TestDevice {
 public:
  Ops& ops() override { return *ops_; }
  void Synchronize() override {}

 private:
  ThreadPool pool_{static_cast<int>(std::thread::hardware_concurrency())};
  std::unique_ptr<Ops> ops_ = MakeCpuOps(pool_);
};

inline std::unique_ptr<TestDevice> MakeCpuReference() { return std::make_unique<CpuReference>(); }

}  // namespace holdfast::kernels
