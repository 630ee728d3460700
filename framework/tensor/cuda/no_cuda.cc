#include "framework/tensor/cuda_device.h"

namespace holdfast {

int NumCudaDevices() { return 0; }

size_t GemmLibraryVersion() { return 0; }

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int, const CudaDeviceOptions&) {
  return absl::UnimplementedError(
      "train.device: cuda needs a build with CUDA (cmake --preset cuda); this one has only train.device: cpu");
}

}  // namespace holdfast
