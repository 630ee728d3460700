#include "framework/parallel/reduction_plan.h"

#include <algorithm>

namespace holdfast {

ReductionPlan::ReductionPlan(absl::Span<const int64_t> microbatches, ReductionMode mode)
    : size_(static_cast<int>(microbatches.size())) {
  const int64_t most = *std::max_element(microbatches.begin(), microbatches.end());
  const int64_t wave_length = mode == ReductionMode::kOnce ? std::max<int64_t>(most, 1) : 1;
  int64_t next = 0;
  for (int64_t done = 0; done < most; done += wave_length) {
    std::vector<MicrobatchRun>& wave = waves_.emplace_back();
    for (const int64_t count : microbatches) {
      wave.push_back({next, std::clamp<int64_t>(count - done, 0, wave_length)});
      next += wave.back().count;
    }
  }
}

std::vector<int64_t> ReductionPlan::MicrobatchesOf(int rank) const {
  std::vector<int64_t> indices;
  for (int wave = 0; wave < num_waves(); ++wave) {
    const MicrobatchRun& run = Run(wave, rank);
    for (int64_t i = 0; i < run.count; ++i) indices.push_back(run.first + i);
  }
  return indices;
}

std::vector<int64_t> EvenMicrobatches(int64_t total, int size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(total / size + (rank < total % size ? 1 : 0));
  return counts;
}

}  // namespace holdfast
