#include "tests/kernels/cuda/gpu_test_device.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "framework/base/status.h"
#include "tests/framework/train/deferred_device.h"

namespace holdfast::kernels {

absl::StatusOr<std::unique_ptr<GpuTestDevice>> GpuTestDevice::Create(const CudaDeviceOptions& options) {
  std::unique_ptr<Device> device = std::make_unique<DeferredDevice>();
  if (!TestsRunOnCpu()) {
    ASSIGN_OR_RETURN(device, MakeCudaDevice(0, options));
  }
  ASSIGN_OR_RETURN(auto stream, device->CreateStream(StreamKind::kCompute));
  return std::unique_ptr<GpuTestDevice>(new GpuTestDevice(std::move(device), std::move(stream)));
}

absl::Status GpuTestDevice::Finish() {
  RETURN_IF_ERROR(stream_->Synchronize());
  ops_.Finish();
  return absl::OkStatus();
}

void GpuTestDevice::Synchronize() {
  const absl::Status status = Finish();
  EXPECT_TRUE(status.ok()) << status;
}

std::unique_ptr<TestDevice> MakeTestDevice(int) { return GpuTestDevice::Create().value(); }

}  // namespace holdfast::kernels

// Without a GPU every test says that it was skipped.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool has_device = holdfast::kernels::TestsRunOnCpu() || holdfast::NumCudaDevices() > 0;
  if (!GTEST_FLAG_GET(list_tests) && !has_device) {
    const bool required = std::getenv("HOLDFAST_REQUIRE_GPU") != nullptr;
    std::printf("[  %s ] no GPU can be used\n", required ? "FAILED " : "SKIPPED");
    return required ? 1 : 0;
  }
  return RUN_ALL_TESTS();
}
