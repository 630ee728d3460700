#include "framework/parallel/sum_order.h"

namespace holdfast {
namespace {

// Adds microbatch `index` to what has been added before it.
void Append(const SumOrder& order, int64_t index, std::vector<MicrobatchRange>* sums) {
  MicrobatchRange range{index, 1};
  while (!sums->empty() && order.Joins(sums->back(), range)) {
    range = {sums->back().first, sums->back().count + range.count};
    sums->pop_back();
  }
  sums->push_back(range);
}

}  // namespace

SumOrder SumOrder::Of(const BatchConfig& batch) {
  return batch.gradient_sum == GradientSumKind::kTree ? Tree() : Chains(batch.gradient_sum_block);
}

bool SumOrder::Joins(const MicrobatchRange& earlier, const MicrobatchRange& later) const {
  if (block_ == 0) return earlier.count == later.count && earlier.first % (2 * earlier.count) == 0;
  const int64_t place = later.first % block_;
  if (place != 0) return earlier.first % block_ == 0 && earlier.count == place;  // the block that it is in
  return later.count == block_ && earlier.first == 0;                            // the blocks before it
}

std::vector<MicrobatchRange> SumOrder::Pieces(const MicrobatchRange& range) const {
  std::vector<MicrobatchRange> sums;
  for (int64_t i = range.first; i < range.end(); ++i) Append(*this, i, &sums);
  return sums;
}

}  // namespace holdfast
