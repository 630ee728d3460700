#include "framework/parallel/group_exchange.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Bytes by rank, and where they end.
struct InBytes {
  InBytes(absl::Span<const int64_t> numbers, absl::Span<const int64_t> starts, int64_t bytes_each) {
    for (size_t r = 0; r < numbers.size(); ++r) {
      counts.push_back(numbers[r] * bytes_each);
      displacements.push_back(numbers[r] == 0 ? 0 : starts[r] * bytes_each);
      end = std::max(end, displacements.back() + counts.back());
    }
  }
  std::vector<int64_t> counts, displacements;
  int64_t end = 0;
};

/// Where each rank's begin if they lie one after the other.
std::vector<int64_t> StartsOf(absl::Span<const int64_t> counts) {
  std::vector<int64_t> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), int64_t{0});
  return starts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupExchange>> GroupExchange::Create(Communicator& communicator,
                                                                     absl::Span<const int> nodes, Device& device,
                                                                     Stream& stream, StepProgress& progress,
                                                                     std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> work_stream, device.CreateStream(StreamKind::kTransfer));
  return std::unique_ptr<GroupExchange>(
      new GroupExchange(communicator, nodes, stream, std::move(work_stream), progress, timeout));
}

absl::Status GroupExchange::AllToAll(RowSlices<const void*> input, RowSlices<void*> output, int64_t bytes_each) {
  if (stop_.stop_requested()) return StepStopped();
  const InBytes out(input.counts, input.starts, bytes_each), in(output.counts, output.starts, bytes_each);
  const ConstBytes from(static_cast<const std::byte*>(input.rows), static_cast<size_t>(out.end));
  const Bytes to(static_cast<std::byte*>(output.rows), static_cast<size_t>(in.end));
  const auto start = std::chrono::steady_clock::now();
  const auto self = static_cast<size_t>(rank());
  for (size_t r = 0; r < out.counts.size(); ++r) {
    if (r != self) (nodes_[r] == nodes_[self] ? bytes_.in_node : bytes_.between_nodes) += out.counts[r];
  }
  const auto exchange = [&] {
    return communicator_.AllToAllV({from, out.counts, out.displacements}, {to, in.counts, in.displacements},
                                   start + timeout_);
  };
  absl::Status status = in_work_ ? exchange() : Waiting(progress_, wait_seconds_, exchange);
  ++progress_.count;
  return status;
}

int64_t GroupExchange::Begin(Work work) { return Post(std::move(work), stream_.Record()); }

int64_t GroupExchange::Post(Work work, std::shared_ptr<Event> written) {
  thread_.Post([this, work = std::move(work), written = std::move(written)] { Run(work, written); });
  return ++begun_;
}

void GroupExchange::Run(const Work& work, const std::shared_ptr<Event>& written) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status = failure_;
  }
  if (status.ok()) {
    WaitFor(written);
    in_work_ = true;
    status = work(work_stream_->ops());
    status.Update(work_stream_->Synchronize());  // also of a work that failed: its memory is taken back
    in_work_ = false;
  }
  const std::lock_guard lock(mutex_);
  failure_ = std::move(status);
  ++done_;
  changed_.notify_all();
}

absl::Status GroupExchange::Wait(int64_t number) {
  return Waiting(progress_, wait_seconds_, [&] {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number || !failure_.ok(); });
    return failure_;
  });
}

void GroupExchange::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    if (done_ == begun_) return;
  }
  communicator_.Abort("a pass failed beside an exchange of rows");
  thread_.Drain();
}

absl::StatusOr<std::vector<int64_t>> GroupExchange::AllToAllCounts(absl::Span<const int64_t> counts,
                                                                   absl::Span<const int64_t> per_rank) {
  HOLDFAST_CHECK(std::ssize(per_rank) == size());
  HOLDFAST_CHECK(std::accumulate(per_rank.begin(), per_rank.end(), int64_t{0}) == std::ssize(counts));
  const std::vector<int64_t> from_each(per_rank.size(), per_rank[static_cast<size_t>(rank())]);
  std::vector<int64_t> result(from_each.size() * static_cast<size_t>(from_each[0]));
  // After what another pass of this rank has begun, if there are two.
  RETURN_IF_ERROR(Wait(Post(
      [&](kernels::Ops&) {
        return AllToAll({counts.data(), per_rank, StartsOf(per_rank)}, {result.data(), from_each, StartsOf(from_each)},
                        sizeof(int64_t));
      },
      nullptr)));
  return result;
}

absl::Status GroupExchange::AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) {
  HOLDFAST_CHECK(std::ssize(rows.counts) == size() && std::ssize(result.counts) == size());
  for (int r = 0; r < size(); ++r) {
    const int64_t least = std::min(rows.counts[static_cast<size_t>(r)], result.counts[static_cast<size_t>(r)]);
    if (least < 0) return absl::InvalidArgumentError(absl::StrCat(least, " rows for or from rank ", r));
  }
  // The rows are there, and nobody reads the result's memory any more.
  RETURN_IF_ERROR((in_work_ ? *work_stream_ : stream_).Synchronize());
  return AllToAll(rows, result, row_bytes);
}

}  // namespace holdfast
