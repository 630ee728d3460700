#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;

/// The length of the file up to and with its last newline; what comes after was cut off by a crash.
absl::StatusOr<off_t> WholeLines(int fd, off_t size) {
  char block[4096];
  while (size > 0) {
    const size_t count = static_cast<size_t>(std::min<off_t>(size, sizeof(block)));
    if (pread(fd, block, count, size - static_cast<off_t>(count)) != static_cast<ssize_t>(count)) {
      return absl::DataLossError("cannot read its end");
    }
    const size_t newline = std::string_view(block, count).rfind('\n');
    if (newline != std::string_view::npos) return size - static_cast<off_t>(count - newline - 1);
    size -= static_cast<off_t>(count);
  }
  return 0;
}

absl::Status CutTornLine(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoToStatus(errno, path);
  absl::StatusOr<off_t> whole = WholeLines(fd, info.st_size);
  if (!whole.ok()) return Annotate(whole.status(), path);
  if (*whole != info.st_size && ftruncate(fd, *whole) != 0) return ErrnoToStatus(errno, path);
  return absl::OkStatus();
}

/// It may be seen again later.
absl::Status CannotLookAt(const std::string& path, int error) {
  return absl::UnavailableError(ErrnoToStatus(error, absl::StrCat("cannot look at ", path)).message());
}

}  // namespace

absl::StatusOr<JsonLinesWriter> JsonLinesWriter::Open(const std::string& path) {
  JsonLinesWriter writer;
  writer.path_ = path;
  RETURN_IF_ERROR(CheckIsFile(path));
  writer.file_ = OpenFile(path, O_RDWR | O_CREAT | O_APPEND, 0644);
  if (!writer.file_.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  // A line written after a torn one would be glued to it and both would be lost.
  RETURN_IF_ERROR(CutTornLine(writer.file_.get(), path));
  struct stat info;
  if (fstat(writer.file_.get(), &info) != 0) return ErrnoToStatus(errno, path);
  writer.bytes_ = info.st_size;
  return writer;
}

absl::Status JsonLinesWriter::Write(const std::string& json) {
  HOLDFAST_CHECK(file_.ok());
  HOLDFAST_CHECK(json.find('\n') == std::string::npos);
  RETURN_IF_ERROR(TakeBack());
  const std::string line = json + "\n";
  size_t written = 0;
  int error = 0;
  while (error == 0 && written < line.size()) {
    const ssize_t count =
        RetryInterrupted([&] { return write(file_.get(), line.data() + written, line.size() - written); });
    if (count < 0) error = errno;
    if (count == 0) error = ENOSPC;
    if (count > 0) written += static_cast<size_t>(count);
  }
  if (error == 0) {
    bytes_ += static_cast<int64_t>(written);
    return absl::OkStatus();
  }
  // A disk that fills up takes a part of the line, and only of the rest says why. Take it back, so that the file still
  // ends with a whole one.
  unfinished_ = static_cast<int64_t>(written);
  TakeBack().IgnoreError();
  return ErrnoToStatus(error, absl::StrCat("cannot write to ", path_));
}

// What a failed sync leaves nobody knows, and a second one need not tell: the line is taken back, to be written anew.
absl::Status JsonLinesWriter::WriteDurably(const std::string& json) {
  RETURN_IF_ERROR(Write(json));
  if (fdatasync(file_.get()) == 0) return absl::OkStatus();
  const int error = errno;
  unfinished_ = static_cast<int64_t>(json.size()) + 1;
  bytes_ -= unfinished_;
  TakeBack().IgnoreError();
  return ErrnoToStatus(error, absl::StrCat("cannot sync ", path_));
}

absl::Status JsonLinesWriter::CutTo(int64_t bytes) {
  if (ftruncate(file_.get(), bytes) != 0 || fsync(file_.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("cannot cut ", path_, " off"));
  }
  bytes_ = bytes;
  unfinished_ = 0;
  return absl::OkStatus();
}

absl::Status JsonLinesWriter::CheckInPlace() const {
  struct stat ours, there;
  if (fstat(file_.get(), &ours) != 0) return CannotLookAt(path_, errno);
  if (ours.st_size < bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " has been cut off to ", ours.st_size, " of ", bytes_,
                                                      " bytes while this process wrote into it"));
  }
  const int error = stat(path_.c_str(), &there) == 0 ? 0 : errno;
  const bool is_there = error == 0;
  if (is_there && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return absl::OkStatus();
  if (ours.st_nlink == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has been removed", is_there ? " and replaced" : "", " while this process wrote into it"));
  }
  if (!is_there && error != ENOENT) return CannotLookAt(path_, error);
  return absl::UnavailableError(
      absl::StrCat(path_, is_there ? " is another file than the one that this process writes into" : " is missing",
                   is_there ? ": put that one" : ": put it", " back, or stop this process"));
}

bool JsonLinesWriter::WasRemoved() const {
  struct stat ours, there;
  if (fstat(file_.get(), &ours) != 0 || ours.st_nlink != 0 || ours.st_size < bytes_) return false;
  return lstat(path_.c_str(), &there) != 0 && errno == ENOENT;
}

// Never in the place of what somebody else has put there meanwhile.
absl::Status JsonLinesWriter::KeepInPlace() {
  absl::Status in_place = CheckInPlace();
  if (in_place.ok() || !WasRemoved()) return in_place;
  const absl::StatusOr<std::unique_ptr<AtomicFile>> opened = AtomicFile::Create(path_);
  if (absl::IsNotFound(opened.status())) return in_place;  // so was its directory
  RETURN_IF_ERROR(opened.status());
  AtomicFile& copy = **opened;
  std::vector<std::byte> piece(kCopyBytes);
  for (int64_t done = 0; done < bytes_;) {
    const absl::Span<std::byte> next(piece.data(), std::min(piece.size(), static_cast<size_t>(bytes_ - done)));
    RETURN_IF_ERROR(ReadExactly(file_.get(), static_cast<uint64_t>(done), {&next, 1}, path_));
    RETURN_IF_ERROR(copy.Append(AsBytes(absl::Span<const std::byte>(next))));
    done += static_cast<int64_t>(next.size());
  }
  const absl::Status made = copy.CommitNew();
  if (absl::IsAlreadyExists(made)) return in_place;
  RETURN_IF_ERROR(made);
  ASSIGN_OR_RETURN(*this, Open(path_));
  LogWarning(path_, " was removed while this process wrote into it; it has been written anew with all its lines");
  return absl::OkStatus();
}

// Where a server does not answer, cutting fails as writing does. It is tried again before the next line.
absl::Status JsonLinesWriter::TakeBack() {
  if (unfinished_ == 0) return absl::OkStatus();
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  if (end < 0 || (end >= bytes_ + unfinished_ && ftruncate(file_.get(), end - unfinished_) != 0)) {
    return ErrnoToStatus(errno, absl::StrCat("cannot take the last line out of ", path_, ", which was not finished"));
  }
  unfinished_ = 0;
  return absl::OkStatus();
}

}  // namespace holdfast
