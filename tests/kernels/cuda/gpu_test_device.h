#pragma once
// The device that test_kernels_gpu tests: GPU 0. With HOLDFAST_TEST_DEVICE=cpu it is one of the CPU that does
// everything later and in memory of its own, which shows on any machine that tests wait and copy where they have to.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/tensor/cuda_device.h"
#include "tests/kernels/cuda/copying_ops.h"
#include "tests/kernels/cuda/cpu_reference.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

class GpuTestDevice final : public TestDevice {
 public:
  static absl::StatusOr<std::unique_ptr<GpuTestDevice>> Create(const CudaDeviceOptions& options = {});

  Ops& ops() override { return ops_; }
  void Synchronize() override;
  bool may_round_twice() const override { return !TestsRunOnCpu(); }  // as cuBLASLt does
  /// The same; returns what failed.
  absl::Status Finish();

 private:
  GpuTestDevice(std::unique_ptr<Device> device, std::unique_ptr<Stream> stream)
      : device_(std::move(device)), stream_(std::move(stream)), ops_(*device_, stream_->ops()) {}

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  CopyingOps ops_;
};

}  // namespace holdfast::kernels
