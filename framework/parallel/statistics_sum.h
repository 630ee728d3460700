#pragma once
// What microbatches (or chunks) of all ranks say, combined as declared (framework/nn/statistics.h): every rank gets the
// same values, and which rank had which item decides no bit.

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/comm/communicator.h"
#include "framework/nn/statistics.h"

namespace holdfast {

/// Items 0 .. n-1 that all have the statistics of `layout`, and what this rank knows of them.
struct ItemStatistics {
  const StatisticsLayout* layout = nullptr;
  std::vector<std::vector<int64_t>> items;  // by rank: those it knows; each item once, over all ranks
  std::vector<uint64_t> values;             // (this rank's items, layout->size()): doubles and int64 by their bits
};

/// One result for each of `sources`, in one exchange. A rank sends its doubles item by item and its counts added up.
/// `world`: null = this is the only rank. Fails as AllGatherV does.
absl::StatusOr<std::vector<Statistics>> CombineStatistics(absl::Span<const ItemStatistics> sources, Communicator* world,
                                                          std::chrono::milliseconds timeout);

}  // namespace holdfast
