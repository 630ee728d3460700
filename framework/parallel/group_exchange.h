#pragma once
// The exchange of a layer (framework/nn/exchange.h) between the members of a communicator, which it has to itself: it
// works while weights are gathered and gradients are reduced. What is begun runs on a thread and a stream of its own.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/exchanged_bytes.h"
#include "framework/base/task_thread.h"
#include "framework/comm/communicator.h"
#include "framework/nn/exchange.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

/// Thread-safety: Abort from any thread, everything else from one.
class GroupExchange final : public Exchange {
 public:
  /// All must outlive it. `communicator` serves memory of the CPU and of the device; `nodes`: of its members, see
  /// PartStore; `stream`: of the pass; `timeout`: of one call.
  static absl::StatusOr<std::unique_ptr<GroupExchange>> Create(Communicator& communicator, absl::Span<const int> nodes,
                                                               Device& device, Stream& stream, StepProgress& progress,
                                                               std::chrono::milliseconds timeout);
  ~GroupExchange() override { Abandon(); }

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
  int64_t Begin(Work work) override;
  absl::Status Wait(int64_t number) override;
  void Abandon() override;

  /// Seconds since BeginStep that the pass spent here, waiting for other ranks.
  double wait_seconds() const { return wait_seconds_; }
  /// Sent since BeginStep.
  const ExchangedBytes& bytes() const { return bytes_; }

  /// Ends what is under way, here and with the others.
  void Abort(const std::string& reason) { communicator_.Abort(reason); }

 private:
  GroupExchange(Communicator& communicator, absl::Span<const int> nodes, Stream& stream,
                std::unique_ptr<Stream> work_stream, StepProgress& progress, std::chrono::milliseconds timeout)
      : communicator_(communicator),
        nodes_(nodes),
        stream_(stream),
        work_stream_(std::move(work_stream)),
        progress_(progress),
        timeout_(timeout) {}
  absl::Status AllToAll(RowSlices<const void*> input, RowSlices<void*> output, int64_t bytes_each);
  /// Begins it when `written` (null = it is).
  int64_t Post(Work work, std::shared_ptr<Event> written);
  void Run(const Work& work, const std::shared_ptr<Event>& written);

  Communicator& communicator_;
  absl::Span<const int> nodes_;
  Stream& stream_;
  std::unique_ptr<Stream> work_stream_;  // of what is begun
  StepProgress& progress_;
  std::chrono::milliseconds timeout_;
  std::stop_token stop_;
  double wait_seconds_ = 0;
  // Of whoever makes exchanges, the work or, when there is none, the pass:
  bool in_work_ = false;
  ExchangedBytes bytes_;

  int64_t begun_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t done_ = 0;      // under mutex_
  absl::Status failure_;  // under mutex_

  TaskThread thread_;  // last: its tasks use all of the above
};

}  // namespace holdfast
