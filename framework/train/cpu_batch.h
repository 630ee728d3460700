#pragma once
// One microbatch in CPU memory, as any data set gives it and any model takes it.

#include <cstdint>
#include <variant>
#include <vector>

#include "framework/data/dataset.h"

namespace holdfast {

/// Rows of an array follow each other as the model's losses do.
using CpuArray = std::variant<std::vector<int32_t>, std::vector<float>>;

struct CpuBatch {
  int64_t batch = 0;             // B samples
  int64_t sequence = 0;          // of T positions: B * T losses
  std::vector<CpuArray> arrays;  // as Model::batch_arrays says; an empty one is not there
  int64_t counted = 0;           // losses that are no more than padding are 0 and do not count
  uint32_t step = 0, index = 0;  // which microbatch of which step; without a step (validation) nothing is random

  CpuBatch() = default;
  /// Tokens and their targets.
  CpuBatch(Microbatch tokens);  // NOLINT(google-explicit-constructor): a source of tokens is a source of batches
};

}  // namespace holdfast
