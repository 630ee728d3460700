#include "elastic/coordinator/kept_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxKeptBytes = 1000;

}  // namespace

void KeptFile::KeepInPlace() {
  struct stat info;
  const bool is_missing = lstat(path_.c_str(), &info) != 0 && errno == ENOENT;
  if (!is_missing && !IsOfAnother()) return failures_.Reset();
  if (!is_ours_().ok()) return;
  const absl::Status written = is_missing ? WriteNew() : WriteFileAtomically(path_, text_);
  const char* const was = is_missing ? " was removed" : " was that of a coordinator that no longer leads";
  if (written.ok()) {
    LogWarning(path_, was, "; it has been written anew");
  } else if (!absl::IsAlreadyExists(written)) {  // another coordinator has been quicker
    const auto line = failures_.Line(std::chrono::steady_clock::now().time_since_epoch(), written.message());
    if (line.has_value()) LogWarning(path_, was, ", and cannot be written anew: ", *line);
  }
}

absl::StatusOr<std::string> KeptFile::Read() const { return ReadFile(path_, kMaxKeptBytes); }

bool KeptFile::IsOfAnother() const {
  if (kind_ != KeptFileKind::kOfLeader) return false;
  const absl::StatusOr<std::string> there = Read();
  return there.ok() && *there != text_;
}

absl::Status KeptFile::WriteNew() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   kind_ == KeptFileKind::kSecret ? AtomicFile::CreatePrivate(path_) : AtomicFile::Create(path_));
  RETURN_IF_ERROR(file->Append(text_));
  return file->CommitNew();
}

}  // namespace holdfast
