#include "framework/metrics/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>

#include "absl/strings/match.h"
#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMarkDigits = 16;
constexpr char kOwnerBegin[] = "process ";

std::string NewMark() {
  std::random_device random;
  return absl::StrCat(absl::Hex(uint64_t{random()} << 32 | random(), absl::kZeroPad16));
}

absl::StatusOr<LockText> ReadText(int fd, const std::string& path) {
  char bytes[1000] = {};
  const ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
  if (size < 0) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot read ", path)).message());
  const std::string text(bytes, static_cast<size_t>(size));
  const size_t name = text.find('\n');
  const size_t mark = name == std::string::npos ? name : text.find('\n', name + 1);
  if (mark == std::string::npos) return LockText{text, ""};
  return LockText{text.substr(0, mark + 1), text.substr(mark + 1)};
}

/// By whom, and who has taken and lost it since, nobody knows.
absl::Status Removed(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(path, " has been removed: another process may own the run"));
}

bool IsRemoved(const FileDescriptor& file) {
  struct stat info;
  return file.ok() && fstat(file.get(), &info) == 0 && info.st_nlink == 0;
}

/// Files that processes were about to put in the lock's place when they were killed.
void RemoveLeftOver(const std::string& lock) {
  constexpr std::chrono::hours kLeftOver{24};  // another one may be about to, and clocks may differ
  const std::string begin = std::filesystem::path(lock).filename().string() + ".";
  std::error_code error;
  std::filesystem::directory_iterator files(std::filesystem::path(lock).parent_path(), error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const std::string name = files->path().filename();
    if (!name.starts_with(begin) || name.size() != begin.size() + kMarkDigits) continue;
    std::error_code unknown;
    const auto made = std::filesystem::last_write_time(files->path(), unknown);
    const bool is_old = !unknown && std::filesystem::file_time_type::clock::now() - made > kLeftOver;
    if (is_old) std::filesystem::remove(files->path(), unknown);
  }
}

/// Of `path` and the directories on the way to it what is not there, from the inside.
std::vector<std::string> MissingOnTheWayTo(std::string path) {
  std::vector<std::string> missing;
  std::error_code error;
  while (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) {
    missing.push_back(path);
    if (path == DirectoryOf(path)) break;
    path = DirectoryOf(path);
  }
  return missing;
}

/// Created if needed, with the directory. Of several that start at once another may fail, and remove what it has made.
absl::StatusOr<FileDescriptor> OpenOrCreate(const RunDirectory& directory) {
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    absl::Status status = Annotate(MakeDirectories(directory.root()), "cannot create the run directory");
    if (status.ok()) {
      FileDescriptor file = OpenFile(directory.lock(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
      if (file.ok()) return file;
      status = ErrnoToStatus(errno, absl::StrCat("cannot open ", directory.lock()));
    }
    if (!absl::IsNotFound(status) || attempt == kAttempts) return status;
  }
}

/// What NewOwner has not made: a lock of another program.
bool IsForeign(const LockText& text) { return !text.owner.empty() && !text.owner.starts_with(kOwnerBegin); }

absl::Status CannotWrite(const std::string& path) { return ErrnoToStatus(errno, absl::StrCat("cannot write ", path)); }

}  // namespace

std::string LockText::Name() const {
  const std::string line = owner.substr(0, owner.find('\n'));
  return line.empty() ? "another process" : line;
}

bool LockText::IsHere() const { return absl::EndsWith(Name(), absl::StrCat(" on ", HostName())); }

std::string RunLock::NewOwner() {
  return absl::StrCat(kOwnerBegin, getpid(), " on ", HostName(), "\n", NewMark(), "\n");
}

absl::StatusOr<RunLock> RunLock::Take(const RunDirectory& directory, const std::string& owner) {
  const std::string path = directory.lock();
  std::vector<std::string> made = MissingOnTheWayTo(path);
  for (;;) {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenOrCreate(directory));
    const RunLock there(path, std::move(file));
    const bool is_free = flock(there.file_.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_free && errno != EWOULDBLOCK) return ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    const absl::StatusOr<LockText> text = ReadText(there.file_.get(), path);
    if (!is_free) {
      return absl::AbortedError(absl::StrCat(directory.root(), " is in use by ",
                                             (text.ok() ? *text : LockText()).Name(),
                                             ": wait for it, stop it, or choose another --run-dir"));
    }
    RETURN_IF_ERROR(text.status());
    if (IsForeign(*text)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " exists and does not belong to a run: choose another --run-dir"));
    }
    // Another file may have been put in its place, or it was removed. Who has the lock of the one that is there puts
    // the next one there.
    if (!there.IsInPlace()) continue;
    ASSIGN_OR_RETURN(RunLock lock, Place(path, *text, owner));
    lock.made_ = std::move(made);
    return lock;
  }
}

absl::StatusOr<RunLock> RunLock::TakeFrom(const RunDirectory& directory, const LockText& silent,
                                          const std::string& owner) {
  ASSIGN_OR_RETURN(const LockText text, Read(directory));
  // An empty one is no silent owner's: somebody is taking it at this moment, and is about to put its own in place.
  if (text == silent && !text.owner.empty()) return Place(directory.lock(), text, owner);
  return absl::AbortedError(absl::StrCat(directory.root(), " is in use by ", text.Name(), ", which is not silent"));
}

// A new file, that is ours before anybody can see it: what was said into the old one by somebody who has not noticed
// cannot be taken for ours.
absl::StatusOr<RunLock> RunLock::Place(const std::string& path, LockText previous, const std::string& owner) {
  const std::string next = absl::StrCat(path, ".", NewMark());
  RunLock lock(path, OpenFile(next, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
  if (!lock.file_.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot create ", next));
  lock.previous_ = std::move(previous);
  lock.owner_ = owner;
  absl::Status written = flock(lock.file_.get(), LOCK_EX | LOCK_NB) == 0
                             ? WriteAllAt(lock.file_.get(), 0, lock.owner_, next)
                             : ErrnoToStatus(errno, absl::StrCat("cannot lock ", next));
  if (written.ok() && fsync(lock.file_.get()) != 0) written = CannotWrite(next);
  if (written.ok() && rename(next.c_str(), path.c_str()) != 0) written = CannotWrite(path);
  if (!written.ok()) {
    unlink(next.c_str());
    return written;
  }
  RemoveLeftOver(path);
  return lock;
}

bool RunLock::IsInPlace() const {
  struct stat ours, there;
  return fstat(file_.get(), &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

void RunLock::UndoTake() const {
  std::error_code is_needed;
  for (const std::string& path : made_) {
    if (path == path_ && !IsInPlace()) return;
    std::filesystem::remove(path, is_needed);
    if (is_needed) return;
  }
}

absl::StatusOr<LockText> RunLock::Read(const RunDirectory& directory) {
  const std::string path = directory.lock();
  const FileDescriptor file = OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file.ok()) return ReadText(file.get(), path);
  const absl::Status status = ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return absl::IsNotFound(status) ? status : absl::UnavailableError(status.message());
}

absl::StatusOr<bool> RunLock::IsHeld(const RunDirectory& directory) {
  const std::string path = directory.lock();
  const FileDescriptor file = OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file.ok() && flock(file.get(), LOCK_SH | LOCK_NB) == 0) return false;
  if (file.ok() && errno == EWOULDBLOCK) return true;
  return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot try the lock of ", path)).message());
}

absl::Status RunLock::WhyNotThere(const RunDirectory& directory, const FileDescriptor& seen) {
  const FileDescriptor root = OpenFile(directory.root(), O_PATH | O_DIRECTORY);
  const int error = errno;
  if (IsRemoved(seen)) return Removed(directory.lock());  // rm -r, too
  if (!root.ok()) {
    return absl::UnavailableError(
        absl::StrCat(ErrnoToStatus(error, absl::StrCat("cannot open the run directory ", directory.root())).message(),
                     ": put it back or mount it, or stop this process"));
  }
  if (!seen.ok()) return Removed(directory.lock());
  return absl::UnavailableError(
      absl::StrCat(directory.root(),
                   " is another directory than the run's, which was moved away: remove that one and "
                   "put the run's back, or stop this process"));
}

// The directory may have come back since the lock was not found, so the lock is looked for in one that is open. If
// there is none, our own file says whether it was removed with it (rm -r) or the directory was only moved.
absl::StatusOr<FileDescriptor> RunLock::FindInDirectory() const {
  const RunDirectory root(path_.substr(0, path_.rfind('/')));
  const FileDescriptor directory = OpenFile(root.root(), O_PATH | O_DIRECTORY);
  if (!directory.ok()) return WhyNotThere(root, file_);
  FileDescriptor file(
      openat(directory.get(), path_.c_str() + root.root().size() + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.ok() && errno == ENOENT) return WhyNotThere(root, file_);
  if (!file.ok()) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot open ", path_)).message());
  return file;
}

// What is recorded goes into files that are open. If a copy came back in the directory's place, it would not be there.
absl::Status RunLock::CheckIsNoCopy(int fd) const {
  struct stat ours, there;
  if (fstat(file_.get(), &ours) != 0 || fstat(fd, &there) != 0) {
    return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot look at ", path_)).message());
  }
  if (ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path_,
      " is a copy: another directory has taken the place of the one that this process writes into; the same command "
      "resumes from what is there"));
}

// By its name: after the lock has lapsed, or the file was removed, another one may be there.
absl::Status RunLock::Check() const {
  FileDescriptor file = OpenFile(path_, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.ok() && errno == ENOENT) {
    *was_away_ = true;
    ASSIGN_OR_RETURN(file, FindInDirectory());
  }
  if (!file.ok()) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot open ", path_)).message());
  ASSIGN_OR_RETURN(const LockText text, ReadText(file.get(), path_));
  if (text.owner == owner_) return *was_away_ ? CheckIsNoCopy(file.get()) : absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, " has been taken by ", text.Name(), ": that process owns the run now, and this one stops"));
}

absl::Status RunLock::Say(absl::string_view words) const {
  RETURN_IF_ERROR(WriteAllAt(file_.get(), owner_.size(), words, path_));
  if (ftruncate(file_.get(), static_cast<off_t>(owner_.size() + words.size())) != 0) return CannotWrite(path_);
  return absl::OkStatus();
}

}  // namespace holdfast
