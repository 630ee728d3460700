#pragma once
// Which tensors of two checkpoints differ, where first and by how much. What has equal digests is not read.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/sharded/checkpoint_reader.h"

namespace holdfast {

/// Of the values of one tensor, as bits.
struct ValueDifference {
  int64_t count = 0, first = -1;  // elements; index in the tensor
  float first_a = 0, first_b = 0;
  double max_abs = 0;
  bool unordered = false;  // a NaN on one side
};
using PlaneDifferences = std::vector<ValueDifference>;  // by plane of a tensor

/// A tensor that only one side has (the other's shape is empty), or in another shape, or with other planes of state.
struct TensorMismatch {
  std::string name;
  std::vector<int64_t> shape_a, shape_b;
  std::vector<std::string> planes_a = {}, planes_b = {};
};

struct CheckpointDifference {
  size_t common = 0;                          // tensors that can be compared
  std::vector<TensorMismatch> mismatches;     // the others
  std::map<int, PlaneDifferences> of_tensor;  // by tensor of a: those of which something was read
};

absl::StatusOr<CheckpointDifference> DiffCheckpoints(const CheckpointReader& a, const CheckpointReader& b, int threads,
                                                     const ByteProgress& progress);

}  // namespace holdfast
