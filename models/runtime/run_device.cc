#include "models/runtime/run_device.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/tensor/cuda_device.h"
#include "models/runtime/arithmetic.h"
#include "models/runtime/gemm_table.h"

namespace holdfast {

int GpuOf(int64_t local_index) { return static_cast<int>(local_index % std::max(1, NumCudaDevices())); }

int WorkersOnGpuOf(const WorkerSlot& slot) {
  int count = 0;
  for (int64_t i = 0; i < slot.workers_here; ++i) count += GpuOf(i) == GpuOf(slot.local_index) ? 1 : 0;
  return std::max(1, count);
}

absl::Status CheckGpus(const Config& config, int64_t workers_here) {
  const int gpus = NumCudaDevices();
  if (config.parallel.transport != Transport::kNccl || workers_here <= gpus) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("parallel.transport: nccl needs a GPU for each worker: ", Counted(workers_here, "worker"), " here, ",
                   Counted(gpus, "GPU"), "; start fewer, or use parallel.transport: gloo"));
}

absl::Status CheckHeads(const Config& config, int64_t local_index) {
  if (config.train.device != DeviceKind::kCuda) return absl::OkStatus();
  const bool bf16 = config.train.compute_dtype == ComputeDType::kBF16;
  return CheckCudaHeads(GpuOf(local_index), bf16 ? kernels::DType::kBF16 : kernels::DType::kF32, config.model.head_dim);
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const TrainConfig& config, int64_t local_index) {
  if (config.device == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(const std::string table, ReadGemmTable(config));
    return MakeCudaDevice(GpuOf(local_index), {.gemm_table = table});
  }
  ASSIGN_OR_RETURN(const kernels::Arithmetic arithmetic, ArithmeticOf(config));
  return MakeCpuDevice(static_cast<int>(config.threads), arithmetic);
}

}  // namespace holdfast
