#include "framework/parallel/group_exchange.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// One rank's after the other.
struct Layout {
  Layout(absl::Span<const int64_t> numbers, int64_t bytes_each) {
    for (const int64_t number : numbers) {
      counts.push_back(number * bytes_each);
      displacements.push_back(bytes);
      bytes += counts.back();
    }
  }
  std::vector<int64_t> counts, displacements;
  int64_t bytes = 0;
};

}  // namespace

absl::Status GroupExchange::AllToAll(const void* input, absl::Span<const int64_t> sent, void* output,
                                     absl::Span<const int64_t> received, int64_t bytes_each) {
  if (stop_.stop_requested()) return StepStopped();
  const Layout out(sent, bytes_each), in(received, bytes_each);
  const ConstBytes from(static_cast<const std::byte*>(input), static_cast<size_t>(out.bytes));
  const Bytes to(static_cast<std::byte*>(output), static_cast<size_t>(in.bytes));
  progress_.waiting = true;
  absl::Status status =
      communicator_.AllToAllV({from, out.counts, out.displacements}, {to, in.counts, in.displacements},
                              std::chrono::steady_clock::now() + timeout_);
  progress_.waiting = false;
  ++progress_.count;
  return status;
}

absl::StatusOr<std::vector<int64_t>> GroupExchange::AllToAllCounts(absl::Span<const int64_t> counts,
                                                                   absl::Span<const int64_t> per_rank) {
  HOLDFAST_CHECK(std::ssize(per_rank) == size());
  HOLDFAST_CHECK(std::accumulate(per_rank.begin(), per_rank.end(), int64_t{0}) == std::ssize(counts));
  const std::vector<int64_t> from_each(per_rank.size(), per_rank[static_cast<size_t>(rank())]);
  std::vector<int64_t> result(from_each.size() * static_cast<size_t>(from_each[0]));
  RETURN_IF_ERROR(AllToAll(counts.data(), per_rank, result.data(), from_each, sizeof(int64_t)));
  return result;
}

absl::Status GroupExchange::AllToAllRows(const void* rows, absl::Span<const int64_t> sent, void* result,
                                         absl::Span<const int64_t> received, int64_t row_bytes) {
  HOLDFAST_CHECK(std::ssize(sent) == size() && std::ssize(received) == size());
  for (int r = 0; r < size(); ++r) {
    const int64_t least = std::min(sent[static_cast<size_t>(r)], received[static_cast<size_t>(r)]);
    if (least < 0) return absl::InvalidArgumentError(absl::StrCat(least, " rows for or from rank ", r));
  }
  RETURN_IF_ERROR(stream_.Synchronize());  // the rows are there, and nobody reads the result's memory any more
  return AllToAll(rows, sent, result, received, row_bytes);
}

}  // namespace holdfast
