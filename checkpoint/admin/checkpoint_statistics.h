#pragma once
// Statistics of the values of a checkpoint.

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/admin/tensor_statistics.h"
#include "checkpoint/sharded/checkpoint_reader.h"

namespace holdfast {

using PlaneStatistics = std::vector<TensorStatistics>;  // by plane of a tensor

/// Of `tensors`, by index in the manifest. No digit depends on the number of threads.
absl::StatusOr<std::vector<PlaneStatistics>> ComputeStatistics(const CheckpointReader& reader,
                                                               const std::vector<int>& tensors, int threads,
                                                               const ByteProgress& progress);

}  // namespace holdfast
