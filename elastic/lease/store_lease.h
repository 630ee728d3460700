#pragma once
// A lease in a store beside the run directory: etcd, an object store.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "elastic/lease/lease.h"
#include "elastic/lease/lease_holder.h"
#include "elastic/lease/lease_store.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"

namespace holdfast {

/// What stands in the store:
///   process 12 on node3          who has the lease, and ...
///   5f1c9e0a77b24d31             ... a mark of its own: the same two lines as in the lock of the run directory
///   beat 17                      LeaderWords
///   listens 10.0.0.3:29400       once it does
///   after process 9 on node1     who had the lock before, ...
///   88f00b1dcc3a7e52             ... by which it is seen whether two have the same run directory
std::string LeaseText(const LeaseSight& lease);
/// FailedPrecondition if it is none.
absl::StatusOr<LeaseSight> ReadLease(const LeaseStore& store, const LeaseStore::Entry& entry);

/// The clock of a lease: it counts time in which the machine is suspended.
std::chrono::nanoseconds LeaseNow();

class StoreLease final : public Lease {
 public:
  StoreLease(std::unique_ptr<LeaseStore> store, RunDirectory directory, std::chrono::milliseconds lease);
  /// Whoever has it and has not said its last words leaves it.
  ~StoreLease() override;
  StoreLease(const StoreLease&) = delete;
  StoreLease& operator=(const StoreLease&) = delete;

  absl::StatusOr<LeaseSight> Look() override;
  absl::Status Take(const LeaseSight& sight, bool begins) override;
  absl::Status Say(const LeaderWords& words) override;
  absl::Status Check() override;
  void UndoTake() override { lock_->UndoTake(); }
  std::string Describe() const override { return store_->Describe(); }

  std::string owner() const override { return owner_; }
  void ListensAt(const std::string& address) override;

 private:
  absl::Status CheckDirectory(const LeaseSight& sight);
  absl::Status TakeLock();
  absl::Status Write(const LeaderWords& words);

  const std::unique_ptr<LeaseStore> store_;
  const RunDirectory directory_;
  const std::string owner_;
  LeaseSight seen_;               // the last that was not empty
  bool knows_directory_ = false;  // it has had a lock
  std::string lock_before_;
  std::optional<RunLock> lock_;
  bool has_ended_ = false;

  std::mutex mutex_;
  LeaseHolder holder_;   // under mutex_
  std::string address_;  // under mutex_
};

}  // namespace holdfast
