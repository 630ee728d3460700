#include "framework/nn/exchange.h"

#include <cstddef>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::vector<int64_t>> LocalExchange::AllToAllCounts(absl::Span<const int64_t> counts,
                                                                   absl::Span<const int64_t> per_rank) {
  HOLDFAST_CHECK(per_rank.size() == 1 && counts.size() == static_cast<size_t>(per_rank[0]));
  return std::vector<int64_t>(counts.begin(), counts.end());
}

absl::Status LocalExchange::AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) {
  HOLDFAST_CHECK(rows.counts.size() == 1 && rows.counts == result.counts);
  if (rows.counts[0] == 0) return absl::OkStatus();
  ops_.Copy(static_cast<std::byte*>(result.rows) + result.starts[0] * row_bytes,
            static_cast<const std::byte*>(rows.rows) + rows.starts[0] * row_bytes,
            static_cast<size_t>(rows.counts[0] * row_bytes));
  return absl::OkStatus();
}

int64_t LocalExchange::Begin(Work work) {
  failure_.Update(work(ops_));
  return 1;
}

absl::Status LocalExchange::Wait(int64_t /*number*/) { return failure_; }

}  // namespace holdfast
