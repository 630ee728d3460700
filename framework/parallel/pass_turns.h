#pragma once
// Two passes of a rank, each on a thread of its own, of which one runs at a time: where one would wait for rows it
// pauses, and the other goes on. Who runs when follows from where they pause and from nothing else, so it is the same
// on all ranks, as are therefore the orders of their exchanges, of the units that they acquire and of their gradients.

#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "framework/base/task_thread.h"
#include "framework/nn/unit_schedule.h"

namespace holdfast {

/// Thread-safety: Run from one thread, Pause from a pass that it runs.
class PassTurns {
 public:
  using Pass = absl::FunctionRef<absl::Status()>;

  /// Runs pass 0 on this thread and pass 1 on another; 0 begins. Returns when both have ended, with the error of the
  /// one that failed first. When one has failed the other ends at its pause, or is not begun.
  absl::Status Run(Pass pass0, Pass pass1);
  /// Of pass `lane`. Returns when it is its turn again; an error if the other one has failed.
  absl::Status Pause(int lane);

 private:
  /// The turn goes from `lane` to the other, if that has not ended.
  void GiveTurn(int lane);
  void RunLane(int lane, Pass pass);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  int turn_ = 0;
  std::array<bool, kMaxLanes> ended_{};
  absl::Status failure_;

  TaskThread thread_;  // of pass 1; last: its tasks use all of the above
};

}  // namespace holdfast
