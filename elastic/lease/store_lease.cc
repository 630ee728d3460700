#include "elastic/lease/store_lease.h"

#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"

namespace holdfast {

std::chrono::nanoseconds LeaseNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::string LeaseText(const LeaseSight& lease) {
  std::string text = absl::StrCat(lease.text.owner, lease.text.words);
  if (!lease.address.empty()) absl::StrAppend(&text, "listens ", lease.address, "\n");
  if (!lease.lock_before.empty()) absl::StrAppend(&text, "after ", lease.lock_before);
  return text;
}

absl::StatusOr<LeaseSight> ReadLease(const LeaseStore& store, const LeaseStore::Entry& entry) {
  LeaseSight lease{.text = {}, .lock_before = "", .version = entry.version};
  if (entry.version.empty()) return lease;
  const std::vector<std::string> lines = absl::StrSplit(entry.text, '\n');
  if (lines.size() < 4 || !absl::StartsWith(lines[0], "process ") || !LeaderWords::Read(lines[2] + "\n").has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(store.Describe(), " holds something that is no lease: choose another place for it (--lease)"));
  }
  lease.text = {absl::StrCat(lines[0], "\n", lines[1], "\n"), lines[2] + "\n"};
  for (size_t i = 3; i < lines.size(); ++i) {
    constexpr absl::string_view kListens = "listens ", kAfter = "after ";
    if (absl::StartsWith(lines[i], kListens)) lease.address = lines[i].substr(kListens.size());
    if (!absl::StartsWith(lines[i], kAfter) || i + 1 >= lines.size()) continue;
    lease.lock_before = absl::StrCat(lines[i].substr(kAfter.size()), "\n", lines[i + 1], "\n");
  }
  return lease;
}

StoreLease::StoreLease(std::unique_ptr<LeaseStore> store, RunDirectory directory, std::chrono::milliseconds lease)
    : store_(std::move(store)),
      directory_(std::move(directory)),
      owner_(RunLock::NewOwner()),
      holder_(lease, store_->Describe(), owner_) {}

StoreLease::~StoreLease() {
  if (lock_.has_value() && !has_ended_) Say({.has_left = true}).IgnoreError();
}

absl::StatusOr<LeaseSight> StoreLease::Look() {
  ASSIGN_OR_RETURN(const LeaseStore::Entry entry, store_->Read());
  ASSIGN_OR_RETURN(LeaseSight sight, ReadLease(*store_, entry));
  if (!sight.text.owner.empty()) seen_ = sight;
  knows_directory_ = knows_directory_ || RunLock::Read(directory_).ok();
  return sight;
}

// The one that led until now has written itself into the lock of its directory, or died before it did. A store may have
// lost what it said.
absl::Status StoreLease::CheckDirectory(const LeaseSight& sight) {
  const absl::StatusOr<LockText> lock = RunLock::Read(directory_);
  if (!lock.ok() && !absl::IsNotFound(lock.status())) return lock.status();
  if (!lock.ok() && knows_directory_) {  // else it may be the wrong one
    absl::Status why = RunLock::WhyNotThere(directory_, /*seen=*/{});
    if (absl::IsUnavailable(why)) return why;  // while the directory is missing
  }
  const std::string owner = lock.ok() ? lock->owner : "";
  const bool is_named = owner == seen_.text.owner || owner == seen_.lock_before || owner == owner_;
  if (!owner.empty() && (is_named || seen_.text.owner.empty())) return absl::OkStatus();
  // Somebody may have taken the lease just now, and then the lock.
  ASSIGN_OR_RETURN(const LeaseStore::Entry now, store_->Read());
  if (now.version != sight.version) return absl::AbortedError(absl::StrCat(store_->Describe(), " was taken just now"));
  return absl::FailedPreconditionError(
      absl::StrCat("the run directory ", directory_.root(), " is not the one in which ", seen_.text.Name(),
                   " led the run: all coordinators with --lease ", store_->Describe(), " need the same one"));
}

absl::Status StoreLease::Take(const LeaseSight& sight, bool begins) {
  if (!sight.text.owner.empty()) seen_ = sight;
  if (!begins) RETURN_IF_ERROR(CheckDirectory(sight));
  const absl::StatusOr<LockText> before = RunLock::Read(directory_);
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  lock_before_ = before.ok() ? before->owner : "";
  {
    const std::lock_guard lock(mutex_);
    holder_.Takes(sight);
  }
  RETURN_IF_ERROR(Write({.beat = 1}));
  absl::Status locked = TakeLock();
  if (!locked.ok()) Say({.has_left = true}).IgnoreError();
  return locked;
}

// The lease was its owner's, and so is the lock, unless somebody who knows nothing of the lease has that.
absl::Status StoreLease::TakeLock() {
  absl::StatusOr<RunLock> lock = RunLock::Take(directory_, owner_);
  if (absl::IsAborted(lock.status())) {
    ASSIGN_OR_RETURN(const LockText there, RunLock::Read(directory_));
    const bool is_theirs = there.owner == seen_.text.owner || there.owner == seen_.lock_before;
    if (is_theirs && !there.owner.empty()) lock = RunLock::TakeFrom(directory_, there, owner_);
  }
  RETURN_IF_ERROR(lock.status());
  lock_.emplace(*std::move(lock));
  return absl::OkStatus();
}

void StoreLease::ListensAt(const std::string& address) {
  const std::lock_guard lock(mutex_);
  address_ = address;
}

absl::Status StoreLease::Write(const LeaderWords& words) {
  LeaseSight next{.text = {owner_, words.Line()}, .lock_before = lock_before_};
  std::string version;
  {
    const std::lock_guard lock(mutex_);
    next.address = address_;
    version = holder_.version().value_or("");
  }
  const std::chrono::nanoseconds asked = LeaseNow();
  const absl::StatusOr<std::string> written = store_->Replace(version, LeaseText(next));
  const std::lock_guard lock(mutex_);
  holder_.Wrote(asked, written);
  return written.status();
}

absl::Status StoreLease::Say(const LeaderWords& words) {
  bool must_look = false;
  {
    const std::lock_guard lock(mutex_);
    must_look = !holder_.version().has_value();
  }
  if (must_look) {
    ASSIGN_OR_RETURN(const LeaseSight there, Look());
    const std::lock_guard lock(mutex_);
    holder_.Saw(there);
    if (!holder_.version().has_value()) return holder_.Check(LeaseNow());
  }
  RETURN_IF_ERROR(Write(words));
  has_ended_ = has_ended_ || words.exit_code.has_value();
  return absl::OkStatus();
}

absl::Status StoreLease::Check() {
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(holder_.Check(LeaseNow()));
  }
  return lock_->Check();
}

}  // namespace holdfast
