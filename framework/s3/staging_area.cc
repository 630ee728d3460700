#include "framework/s3/staging_area.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "framework/base/files.h"
#include "framework/base/format_bytes.h"
#include "framework/base/process_id.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr char kClaimSuffix[] = ".lock";
constexpr size_t kMaxClaimBytes = 4096;
constexpr std::chrono::hours kStagingAbandonedAfter{24};
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
bool IsClaimName(absl::string_view name) {
  return absl::StartsWith(name, "s3-") && absl::EndsWith(name, kClaimSuffix) &&
         IsToken(name.substr(3, name.size() - 3 - std::min(name.size() - 3, sizeof kClaimSuffix - 1)));
}

void Remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

/// When something in it, or the claim, was last written.
std::filesystem::file_time_type LastWritten(const std::string& claim, const std::string& folder) {
  std::error_code ignored;
  auto last = std::filesystem::last_write_time(claim, ignored);
  for (std::filesystem::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored)) {
    std::error_code gone;
    const auto written = i->last_write_time(gone);
    if (!gone) last = std::max(last, written);
  }
  return last;
}

void SweepOne(const std::string& claim) {
  const absl::StatusOr<std::string> text = ReadFile(claim, kMaxClaimBytes);
  if (absl::IsNotFound(text.status())) return;  // just removed
  const std::string folder = claim.substr(0, claim.size() - (sizeof kClaimSuffix - 1));
  const Life life = LifeOf(ParseProcessId(text.ok() ? *text : ""));
  const bool old = std::filesystem::file_time_type::clock::now() - LastWritten(claim, folder) > kStagingAbandonedAfter;
  if (life == Life::kAlive || (life == Life::kUnknown && !old)) return;
  Remove(folder);
  unlink(claim.c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagingArea>> StagingArea::Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoToStatus(error.value(), directory);
  std::unique_ptr<StagingArea> area(new StagingArea(absl::StrCat(directory, "/s3-", RandomToken())));
  RETURN_IF_ERROR(area->Claim());
  return area;
}

// Also where it has been removed: by who could not tell that we live, after a day in which we have written nothing.
absl::Status StagingArea::Claim() const {
  const std::string claim = path_ + kClaimSuffix;
  const int fd = open(claim.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoToStatus(errno, claim);
  const std::string text = ToText(ThisProcess()) + "\n";
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int reason = errno;
  close(fd);
  if (!written) return ErrnoToStatus(reason, claim);
  if (mkdir(path_.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoToStatus(errno, path_);
}

StagingArea::~StagingArea() {
  Remove(path_);
  unlink((path_ + kClaimSuffix).c_str());
}

absl::StatusOr<std::string> StagingArea::NewFile(absl::string_view label, uint64_t bytes) {
  RETURN_IF_ERROR(Claim());
  RETURN_IF_ERROR(CheckRoom(path_, bytes));
  std::string path = absl::StrCat(path_, "/", RandomToken(), "-", label);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, path);
  close(fd);
  return path;
}

absl::Status StagingArea::Sweep(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> claims;  // first the names, then the removals
  for (std::filesystem::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    if (IsClaimName(i->path().filename().string())) claims.push_back(i->path().string());
  }
  for (const std::string& claim : claims) SweepOne(claim);
  if (!error || error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  return ErrnoToStatus(error.value(), directory);
}

absl::Status CheckRoom(const std::string& directory, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(directory.c_str(), &info) != 0) return ErrnoToStatus(errno, directory);
  const uint64_t room = uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(directory, ": ", FormatBytes(static_cast<double>(bytes)),
                                                   " are needed, ", FormatBytes(static_cast<double>(room)),
                                                   " are free on this file system"));
}

}  // namespace holdfast
