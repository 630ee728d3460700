#include "framework/parallel/reduction_plan.h"

#include <algorithm>

namespace holdfast {

ReductionPlan::ReductionPlan(absl::Span<const int64_t> microbatches, ReductionMode mode, const SumOrder& order)
    : mode_(mode), size_(static_cast<int>(microbatches.size())) {
  std::vector<int64_t> left(microbatches.begin(), microbatches.end());
  int64_t next = 0;
  if (mode == ReductionMode::kPieces) {
    const bool one_wave = order.block() == 0 || size_ == 1;
    const int64_t most = *std::max_element(left.begin(), left.end());
    AddWaves(order, one_wave ? most : order.block(), one_wave, &left, &next);
  }
  AddWaves(order, 1, false, &left, &next);
}

void ReductionPlan::AddWaves(const SumOrder& order, int64_t length, bool part, std::vector<int64_t>* left,
                             int64_t* next) {
  while (*std::max_element(left->begin(), left->end()) >= std::max<int64_t>(length, 1)) {
    std::vector<Share>& wave = waves_.emplace_back();
    for (int64_t& count : *left) {
      const MicrobatchRange range{*next, count >= length || part ? std::min(count, length) : 0};
      wave.push_back({range, order.Pieces(range)});
      count -= range.count;
      *next += range.count;
    }
  }
}

size_t ReductionPlan::MaxPieces(int wave) const {
  size_t most = 0;
  for (int rank = 0; rank < size_; ++rank) most = std::max(most, Pieces(wave, rank).size());
  return most;
}

int64_t ReductionPlan::MaxMicrobatches(int wave) const {
  int64_t most = 0;
  for (int rank = 0; rank < size_; ++rank) most = std::max(most, RangeOf(wave, rank).count);
  return most;
}

std::vector<int64_t> ReductionPlan::MicrobatchesOf(int rank) const {
  std::vector<int64_t> indices;
  for (int wave = 0; wave < num_waves(); ++wave) {
    const MicrobatchRange& range = RangeOf(wave, rank);
    for (int64_t i = range.first; i < range.end(); ++i) indices.push_back(i);
  }
  return indices;
}

std::vector<int64_t> EvenMicrobatches(int64_t total, int size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(total / size + (rank < total % size ? 1 : 0));
  return counts;
}

}  // namespace holdfast
