#include "elastic/sweep/fork_run.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

absl::Status ShareFile(const fs::path& from, const fs::path& to) {
  if (link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return CopyFileAtomically(from, to);  // the file system has no links, or no more of this file
}

absl::Status ShareDirectory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directory(to, error);
  if (error) return ErrnoToStatus(error.value(), to);
  for (fs::directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    const fs::path place = to / at->path().filename();
    RETURN_IF_ERROR(fs::is_directory(at->symlink_status()) ? ShareDirectory(at->path(), place)
                                                           : ShareFile(at->path(), place));
  }
  if (error) return ErrnoToStatus(error.value(), from);
  return SyncDirectory(to);
}

}  // namespace

absl::Status ForkRun(const std::string& from, const std::string& to) {
  const RunDirectory source(from), made(to + ".fork");
  const std::string what = absl::StrCat("cannot make ", to, " of ", from);
  std::error_code error;
  fs::remove_all(made.root(), error);
  if (error) return ErrnoToStatus(error.value(), what);
  RETURN_IF_ERROR(Annotate(MakeDirectories(made.root()), what));
  RETURN_IF_ERROR(Annotate(ShareDirectory(source.checkpoints(), made.checkpoints()), what));
  for (const auto& [file, copy] : {std::pair(source.config(), made.config()),
                                   {source.metrics(), made.metrics()},
                                   {source.events(), made.events()},
                                   {source.coordinator_state(), made.coordinator_state()}}) {
    RETURN_IF_ERROR(CopyFileAtomically(file, copy));
  }
  fs::rename(made.root(), to, error);
  if (error) return ErrnoToStatus(error.value(), what);
  return SyncDirectory(DirectoryOf(to));
}

}  // namespace holdfast
