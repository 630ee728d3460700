#pragma once
// The lease of those that may lead a run: which coordinator does, and that the others may take its place when it has
// ended or is silent. It decides who is to lead and nothing else: that a run has one record, whatever a lease says, is
// what the lock of its directory is for (framework/metrics/run_lock.h), which every leader holds as well.
//
// No clock is compared with another one's. Who has the lease writes something new into it five times in its duration;
// one that waits takes it when it has seen nothing new for the duration, by its own clock; and who has it stops before
// that time is over, counted from when its last renewal was sent (lease_holder.h).

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/lease/lease_watch.h"

namespace holdfast {

/// Calls may take as long as a request to the store; Check never does. Check and Say may be called by several threads.
class Lease {
 public:
  virtual ~Lease() = default;
  /// Who has it. FailedPrecondition: this is no lease any more (the directory was removed, something else stands
  /// there); other errors may pass.
  virtual absl::StatusOr<LeaseSight> Look() = 0;
  /// Takes it from whom `sight` shows, and then the lock of the run directory. Aborted: somebody else has it by now.
  /// Unless one `begins` the run or resumes it, FailedPrecondition if the run directory is not the one in which it was
  /// led until now. Unavailable: nobody knows, look again.
  virtual absl::Status Take(const LeaseSight& sight, bool begins) = 0;

  // Of whoever has it:
  /// Renews it. FailedPrecondition: another one has it.
  virtual absl::Status Say(const LeaderWords& words) = 0;
  /// Whether this one leads: FailedPrecondition, naming the other, once another one has it or the run directory;
  /// Unavailable while that cannot be told.
  virtual absl::Status Check() = 0;

  /// RunLock::UndoTake, for who begins no run after all.
  virtual void UndoTake() = 0;

  /// Where this one is reached, from the next Say on, where the lease says that.
  virtual void ListensAt(const std::string& /*address*/) {}
  /// What it writes of itself, as LockText::owner has it; empty if that is made when it is taken.
  virtual std::string owner() const { return ""; }
  /// For messages: "the run directory /runs/a", "etcd://db:2379/runs/a".
  virtual std::string Describe() const = 0;
};

}  // namespace holdfast
