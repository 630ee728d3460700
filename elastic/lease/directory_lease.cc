#include "elastic/lease/directory_lease.h"

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<LeaseSight> DirectoryLease::Look() {
  FileDescriptor file = OpenFile(directory_.lock(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file.ok()) seen_ = std::move(file);
  absl::StatusOr<LockText> text = RunLock::Read(directory_);
  if (absl::IsNotFound(text.status()) && must_exist_) return NotThere();
  if (absl::IsNotFound(text.status())) return LeaseSight{};
  RETURN_IF_ERROR(text.status());
  must_exist_ = must_exist_ || !text->owner.empty();  // it is empty for a moment before the first one has it
  ASSIGN_OR_RETURN(const bool is_held, RunLock::IsHeld(directory_));
  return LeaseSight{.text = *std::move(text),
                    .owner = is_held ? LeaseSight::Owner::kThere : LeaseSight::Owner::kGone,
                    .lock_before = ""};
}

absl::Status DirectoryLease::Take(const LeaseSight& sight, bool /*begins*/) {
  if (must_exist_ && absl::IsNotFound(RunLock::Read(directory_).status())) return NotThere();  // it would be made anew
  absl::StatusOr<RunLock> lock = RunLock::Take(directory_);
  if (absl::IsAborted(lock.status()) && sight.owner == LeaseSight::Owner::kThere) {
    lock = RunLock::TakeFrom(directory_, sight.text);
  }
  RETURN_IF_ERROR(lock.status());
  if (must_exist_ && lock->previous().owner.empty()) return Removed();
  lock_.emplace(*std::move(lock));
  return absl::OkStatus();
}

absl::Status DirectoryLease::NotThere() const {
  const absl::Status why = RunLock::WhyNotThere(directory_, seen_);
  return absl::IsFailedPrecondition(why) ? Removed() : why;
}

absl::Status DirectoryLease::Removed() const {
  return absl::FailedPreconditionError(
      absl::StrCat(directory_.lock(), " has been removed: there is no run to lead any more"));
}

absl::Status DirectoryLease::Say(const LeaderWords& words) { return lock_->Say(words.Line()); }
absl::Status DirectoryLease::Check() { return lock_->Check(); }
std::string DirectoryLease::Describe() const { return absl::StrCat("the run directory ", directory_.root()); }

}  // namespace holdfast
