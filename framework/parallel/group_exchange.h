#pragma once
// The exchange of a layer (framework/nn/exchange.h) between the members of a communicator, which it has to itself: it
// works while weights are gathered and gradients are reduced.

#include <chrono>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/exchanged_bytes.h"
#include "framework/comm/communicator.h"
#include "framework/nn/exchange.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

/// Thread-safety: Abort from any thread, everything else from one.
class GroupExchange final : public Exchange {
 public:
  /// All must outlive it. `communicator` serves memory of the CPU and of the device; `nodes`: of its members, see
  /// PartStore; `stream`: of the pass; `timeout`: of one call.
  GroupExchange(Communicator& communicator, absl::Span<const int> nodes, Stream& stream, StepProgress& progress,
                std::chrono::milliseconds timeout)
      : communicator_(communicator), nodes_(nodes), stream_(stream), progress_(progress), timeout_(timeout) {}

  /// From here on calls fail with Cancelled once `stop` is requested.
  void BeginStep(std::stop_token stop) {
    stop_ = std::move(stop);
    wait_seconds_ = 0;
    bytes_ = {};
  }

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  absl::StatusOr<std::vector<int64_t>> AllToAllCounts(absl::Span<const int64_t> counts,
                                                      absl::Span<const int64_t> per_rank) override;
  absl::Status AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) override;

  /// Seconds since BeginStep spent here, waiting for other ranks.
  double wait_seconds() const { return wait_seconds_; }
  /// Sent since BeginStep.
  const ExchangedBytes& bytes() const { return bytes_; }

  /// Ends what is under way, here and with the others.
  void Abort(const std::string& reason) { communicator_.Abort(reason); }

 private:
  absl::Status AllToAll(RowSlices<const void*> input, RowSlices<void*> output, int64_t bytes_each);

  Communicator& communicator_;
  absl::Span<const int> nodes_;
  Stream& stream_;
  StepProgress& progress_;
  std::chrono::milliseconds timeout_;
  std::stop_token stop_;
  double wait_seconds_ = 0;
  ExchangedBytes bytes_;
};

}  // namespace holdfast
