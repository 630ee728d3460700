#pragma once
// NVIDIA GPUs.

#include <memory>

#include "absl/status/statusor.h"
#include "framework/tensor/device.h"

namespace holdfast {

/// How many there are; 0 in a build without CUDA or a machine without a driver.
int NumCudaDevices();

/// GPU `index` as CUDA numbers them. Unimplemented in a build without CUDA; FailedPrecondition, saying what to do, if
/// there is no such GPU or it is older than compute capability 8.0.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index);

}  // namespace holdfast
