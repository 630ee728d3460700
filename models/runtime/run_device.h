#pragma once
// The device of a config.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/tensor/device.h"

namespace holdfast {

/// One of the workers of a machine, which share its memory and its GPUs.
struct WorkerSlot {
  int64_t workers_here = 1;
  int64_t local_index = 0;  // which of them
};

/// The GPU of a worker. With fewer GPUs than workers several share one.
int GpuOf(int64_t local_index);

/// How many of the workers share the GPU of `slot`, itself included.
int WorkersOnGpuOf(const WorkerSlot& slot);

/// FailedPrecondition if `workers_here` have too few GPUs for their transport: NCCL refuses two workers on one, but
/// only when all have connected.
absl::Status CheckGpus(const Config& config, int64_t workers_here);

/// FailedPrecondition if the GPU of a worker cannot train the heads of the config's model. Takes nothing of the GPU.
absl::Status CheckHeads(const Config& config, int64_t local_index = 0);

/// `local_index`: of the worker on its machine.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const TrainConfig& config, int64_t local_index = 0);

}  // namespace holdfast
