#pragma once
// Who runs the run in a directory, and that nobody else does.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/base/file_descriptor.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// What stands in a run's lock file.
struct LockText {
  std::string owner;  // one line for people, "process 12 on node3", and one that is another each time the lock is taken
  std::string words;  // what the owner says of itself

  /// "process 12 on node3", or "another process" if that cannot be read.
  std::string Name() const;
  /// Whether that is a process of this machine, as far as names of machines tell.
  bool IsHere() const;
  friend bool operator==(const LockText&, const LockText&) = default;
};

/// Held by the one process that runs a run; gone with it, however it ends. It may also lapse: on a shared file system
/// when its host is cut off for long, when somebody removes the file, or when it is taken from an owner that is silent.
/// So whoever takes the lock puts a new file in its place that says who has it, and whoever had it finds that there.
/// What the old owner still says goes into the old file. Thread-safe but for Take, TakeFrom and moves.
class RunLock {
 public:
  /// Creates the directory if needed. Aborted, naming the other process, if it is taken; AlreadyExists if the file is
  /// somebody else's. `owner`: NewOwner's, of this process.
  static absl::StatusOr<RunLock> Take(const RunDirectory& directory, const std::string& owner = NewOwner());
  /// Takes it from an owner that still holds it, but has been silent for too long (it is frozen, or cut off).
  /// Aborted if by now another text stands there than `silent`. Of two processes that do this at once both
  /// may succeed, and Check tells the first.
  static absl::StatusOr<RunLock> TakeFrom(const RunDirectory& directory, const LockText& silent,
                                          const std::string& owner = NewOwner());
  /// NotFound if nobody has ever had it, Unavailable if that cannot be told now.
  static absl::StatusOr<LockText> Read(const RunDirectory& directory);
  /// Whether a process holds the lock that is there, as its kernel says.
  static absl::StatusOr<bool> IsHeld(const RunDirectory& directory);
  /// Why there is none to Read, where there was one: FailedPrecondition if it has been removed, Unavailable, with what
  /// to do, while the directory is missing or another one is in its place. `seen` is the file that was read the last
  /// time: if it has a name, it was moved with its directory. Without it a directory that has no lock has lost it.
  static absl::Status WhyNotThere(const RunDirectory& directory, const FileDescriptor& seen);
  /// As LockText has it: this process, and a mark that nobody else has.
  static std::string NewOwner();

  /// FailedPrecondition, naming the other process, once the lock has been taken by another one, or its file has been
  /// removed; Unavailable if that cannot be told now, as while the directory is not there (moved, not mounted), or
  /// another one without a lock is in its place. Of one that comes back it must be the same file, and no copy
  /// (FailedPrecondition).
  absl::Status Check() const;
  /// For those who Read, in the place of what was said before. Needs no room on the disk after the first time, if it
  /// does not grow by much.
  absl::Status Say(absl::string_view words) const;
  /// What stood there before; empty if nobody had the lock.
  const LockText& previous() const { return previous_; }
  /// What Take has made is gone, where nothing else has come into it: the file and the directories on the way to it, if
  /// they were not there. For who begins no run after all; the lock is lost by that.
  void UndoTake() const;

 private:
  RunLock(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  static absl::StatusOr<RunLock> Place(const std::string& path, LockText previous, const std::string& owner);
  bool IsInPlace() const;
  absl::StatusOr<FileDescriptor> FindInDirectory() const;
  absl::Status CheckIsNoCopy(int fd) const;

  std::string path_;
  FileDescriptor file_;
  std::string owner_;  // what we have written into it
  LockText previous_;
  std::vector<std::string> made_;  // by Take: paths, from the inside
  std::unique_ptr<std::atomic<bool>> was_away_ = std::make_unique<std::atomic<bool>>(false);  // once not found by name
};

}  // namespace holdfast
