#include "elastic/coordinator/kept_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {

void KeptFile::KeepInPlace() {
  struct stat info;
  if (lstat(path_.c_str(), &info) == 0 || errno != ENOENT) return failures_.Reset();
  if (!is_ours_().ok()) return;
  const absl::Status written = WriteNew();
  if (written.ok()) {
    LogWarning(path_, " was removed; it has been written anew");
  } else if (!absl::IsAlreadyExists(written)) {  // another coordinator has been quicker
    const auto line = failures_.Line(std::chrono::steady_clock::now().time_since_epoch(), written.message());
    if (line.has_value()) LogWarning(path_, " was removed, and cannot be written anew: ", *line);
  }
}

absl::Status KeptFile::WriteNew() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   is_secret_ ? AtomicFile::CreatePrivate(path_) : AtomicFile::Create(path_));
  RETURN_IF_ERROR(file->Append(text_));
  return file->CommitNew();
}

}  // namespace holdfast
