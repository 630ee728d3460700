#include "framework/tensor/cuda_device.h"

namespace holdfast {

int NumCudaDevices() { return 0; }

size_t GemmLibraryVersion() { return 0; }

namespace {

absl::Status NotInThisBuild() {
  return absl::FailedPreconditionError(
      "train.device: cuda needs a build with CUDA (cmake --preset cuda); this one has only train.device: cpu");
}

}  // namespace

absl::StatusOr<std::string> CheckCudaDevice(int, const CudaDeviceOptions&) { return NotInThisBuild(); }

absl::Status CheckCudaHeads(int, kernels::DType, int64_t) { return NotInThisBuild(); }

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int, const CudaDeviceOptions&) { return NotInThisBuild(); }

}  // namespace holdfast
