#pragma once
// The lease that is the lock of the run directory.

#include <optional>
#include <string>
#include <utility>

#include "elastic/lease/lease.h"
#include "framework/base/file_descriptor.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"

namespace holdfast {

/// What is said of Lease holds where the directory is shared by all machines. That a process has ended is told by its
/// kernel, which lets go of the lock. Check opens the file, so there is no time after which it is not asked.
class DirectoryLease final : public Lease {
 public:
  /// `must_exist`: somebody has led the run there.
  explicit DirectoryLease(RunDirectory directory, bool must_exist = false)
      : directory_(std::move(directory)), must_exist_(must_exist) {}

  absl::StatusOr<LeaseSight> Look() override;
  absl::Status Take(const LeaseSight& sight, bool begins) override;
  absl::Status Say(const LeaderWords& words) override;
  absl::Status Check() override;
  void UndoTake() override { lock_->UndoTake(); }
  std::string Describe() const override;

 private:
  absl::Status Removed() const;
  /// The lock, which was there.
  absl::Status NotThere() const;

  const RunDirectory directory_;
  bool must_exist_ = false;
  FileDescriptor seen_;  // the lock of the last look, to know it by when it has no name
  std::optional<RunLock> lock_;
};

}  // namespace holdfast
