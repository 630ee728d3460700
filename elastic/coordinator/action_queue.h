#pragma once
// Carries out a coordinator's actions, in order, for as long as the run is its own. A coordinator may have been
// replaced without knowing it: its host was cut off or frozen for so long that the run's lock lapsed, and somebody
// started another one. The other one first takes the lock and then reads what is recorded; this one first records and
// then looks whether the lock is still its own, before anybody is told of what was recorded. So whatever was told to
// workers is known to the other one, and of one step two commits are never told.

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "elastic/control/coordinator.h"

namespace holdfast {

/// Thread-safety: none.
class ActionQueue {
 public:
  /// FailedPrecondition once another coordinator has the run (RunLock::Check).
  using IsOurs = std::function<absl::Status()>;
  using Do = std::function<absl::Status(const CoordinatorAction&)>;

  ActionQueue(IsOurs is_ours, Do carry_out) : is_ours_(std::move(is_ours)), do_(std::move(carry_out)) {}

  void Add(std::vector<CoordinatorAction> actions);
  /// Until all is done, or one fails, which then is the next to be tried, or the run is no longer ours (`replaced`),
  /// which also is why one may have failed.
  absl::Status CarryOut();
  bool replaced() const { return replaced_; }
  /// What has not been carried out, which is not going to be.
  std::deque<CoordinatorAction> Take() { return std::exchange(actions_, {}); }
  bool empty() const { return actions_.empty(); }
  /// Whether the end of the run is among what has not been carried out. It need not be the last: in the tick in which a
  /// worker that stands still has ended the run, a checkpoint may be reported as slow after that.
  bool ends_run() const;
  /// As CarryOut asks.
  absl::Status Look();

 private:
  IsOurs is_ours_;
  Do do_;
  std::deque<CoordinatorAction> actions_;
  bool must_look_ = false, replaced_ = false;
};

}  // namespace holdfast
