#pragma once
// Statistics of the values of a checkpoint.

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/admin/tensor_statistics.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/shard_index.h"

namespace holdfast {

using KindStatistics = std::array<TensorStatistics, kStateKinds>;  // of weight and moments

/// Of `tensors`, by index in the manifest. No digit depends on the number of threads.
absl::StatusOr<std::vector<KindStatistics>> ComputeStatistics(const CheckpointReader& reader,
                                                              const std::vector<int>& tensors, int threads,
                                                              const ByteProgress& progress);

}  // namespace holdfast
