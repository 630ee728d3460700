#pragma once
// NVIDIA GPUs.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/tensor/device.h"
#include "kernels/gemm_table.h"
#include "kernels/types.h"

namespace holdfast {

/// How many there are; 0 in a build without CUDA or a machine without a driver.
int NumCudaDevices();

/// Of the library whose algorithms a table of matrix products names; 0 in a build without CUDA.
size_t GemmLibraryVersion();

struct CudaDeviceOptions {
  std::string gemm_table;  // text of a kernels::GemmTable: its products take its algorithms; empty = none
  std::function<void(const kernels::TunedGemm&)> on_tuned = nullptr;  // see kernels::GemmChoice
};

/// The name of the device that MakeCudaDevice would make. Takes nothing of the GPU, where a Device takes some hundred
/// MiB until the process ends. Errors as MakeCudaDevice, but for a build that has no kernels for the GPU.
absl::StatusOr<std::string> CheckCudaDevice(int index, const CudaDeviceOptions& options = {});

/// FailedPrecondition, naming model.head_dim, if a block of attention's kernels has too little shared memory on GPU
/// `index` to train heads of `head_dim`, computed in `dtype`. Takes nothing of the GPU either.
absl::Status CheckCudaHeads(int index, kernels::DType dtype, int64_t head_dim);

/// GPU `index` as CUDA numbers them. FailedPrecondition, saying what to do, in a build without CUDA, or if there is no
/// such GPU or it is older than compute capability 8.0; InvalidArgument if the table cannot be used.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, const CudaDeviceOptions& options = {});

}  // namespace holdfast
