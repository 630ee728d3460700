#include "framework/s3/staging_area.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kNameAttempts = 16;
constexpr char kLockSuffix[] = ".lock";
constexpr size_t kTokenDigits = 16;

std::string RandomToken() {
  std::random_device random;  // not the pid: two machines may share the directory
  return absl::StrFormat("%08x%08x", random(), random());
}

bool IsToken(absl::string_view text) {
  return text.size() == kTokenDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// "s3-0123456789abcdef.lock"
bool IsLockName(absl::string_view name) {
  return absl::StartsWith(name, "s3-") && absl::EndsWith(name, kLockSuffix) &&
         IsToken(name.substr(3, name.size() - 3 - std::min(name.size() - 3, sizeof kLockSuffix - 1)));
}

bool StillHasName(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

void Remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

void SweepOne(const std::string& lock_path) {
  const int fd = open(lock_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;  // just removed
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && StillHasName(fd)) {
    Remove(lock_path.substr(0, lock_path.size() - (sizeof kLockSuffix - 1)));
    unlink(lock_path.c_str());
  }
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagingArea>> StagingArea::Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoToStatus(error.value(), directory);
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    std::string path = absl::StrCat(directory, "/s3-", RandomToken());
    const std::string lock_path = path + kLockSuffix;
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return ErrnoToStatus(errno, lock_path);
    // A Sweep may have locked or removed it between these lines; then it is not ours.
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !StillHasName(fd)) {
      close(fd);
      continue;
    }
    if (mkdir(path.c_str(), 0700) == 0) return std::unique_ptr<StagingArea>(new StagingArea(std::move(path), fd));
    const int reason = errno;
    unlink(lock_path.c_str());
    close(fd);
    return ErrnoToStatus(reason, path);
  }
  return absl::UnavailableError(absl::StrCat(directory, ": no staging folder could be locked"));
}

StagingArea::~StagingArea() {
  Remove(path_);
  unlink((path_ + kLockSuffix).c_str());
  close(lock_);
}

absl::StatusOr<std::string> StagingArea::NewFile(absl::string_view label, uint64_t bytes) {
  RETURN_IF_ERROR(CheckRoom(path_, bytes));
  std::string path = absl::StrCat(path_, "/", RandomToken(), "-", label);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, path);
  close(fd);
  return path;
}

absl::Status StagingArea::Sweep(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> locks;  // first the names, then the removals
  for (std::filesystem::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    if (IsLockName(i->path().filename().string())) locks.push_back(i->path().string());
  }
  for (const std::string& lock : locks) SweepOne(lock);
  if (!error || error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  return ErrnoToStatus(error.value(), directory);
}

absl::Status CheckRoom(const std::string& directory, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(directory.c_str(), &info) != 0) return ErrnoToStatus(errno, directory);
  const uint64_t room = uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(directory, ": ", bytes, " bytes are needed, ", room, " are free on this file system"));
}

}  // namespace holdfast
