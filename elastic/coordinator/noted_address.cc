#include "elastic/coordinator/noted_address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxAddressFileBytes = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<NotedAddress>> NotedAddress::Write(const std::string& path, const std::string& address,
                                                                  ActionQueue::IsOurs is_ours) {
  // Else it is there that of one that has taken the run over.
  if (const absl::Status ours = is_ours(); !ours.ok()) return absl::AbortedError(ours.message());
  std::unique_ptr<NotedAddress> noted(new NotedAddress(path, address, std::move(is_ours)));
  RETURN_IF_ERROR(WriteFileAtomically(path, noted->text_));
  return noted;
}

NotedAddress::~NotedAddress() {
  const absl::StatusOr<std::string> there = ReadFile(path_, kMaxAddressFileBytes);
  if (there.ok() && *there == text_) unlink(path_.c_str());
}

void NotedAddress::KeepInPlace() {
  struct stat info;
  if (lstat(path_.c_str(), &info) == 0 || errno != ENOENT) return failures_.Reset();
  if (!is_ours_().ok()) return;
  const absl::Status written = WriteNew();
  if (written.ok()) {
    LogWarning(path_, " was removed; it has been written anew");
  } else if (!absl::IsAlreadyExists(written)) {  // another coordinator has been quicker
    const auto line = failures_.Line(std::chrono::steady_clock::now().time_since_epoch(), written.message());
    if (line.has_value()) LogWarning("cannot say where this coordinator is reached: ", *line);
  }
}

absl::Status NotedAddress::WriteNew() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path_));
  RETURN_IF_ERROR(file->Append(text_));
  return file->CommitNew();
}

}  // namespace holdfast
