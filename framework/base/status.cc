#include "framework/base/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace holdfast {
namespace {

/// Of a limit of this process that was met: it may be raised while a run waits for room.
std::string LimitAdvice(int error) {
  if (error != EFBIG && error != EMFILE) return "";
  const bool is_size = error == EFBIG;
  rlimit limit{};
  if (getrlimit(is_size ? RLIMIT_FSIZE : RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  constexpr rlim_t kFiles = 65536;
  const bool is_hard = limit.rlim_max < (is_size ? RLIM_INFINITY : kFiles);
  return absl::StrCat(is_size ? ": this process may write files of " : ": this process may have ", limit.rlim_cur,
                      is_size ? " bytes" : " open", "; raise that by `prlimit --pid ", getpid(),
                      is_size ? " --fsize=unlimited`" : absl::StrCat(" --nofile=", kFiles, "`"),
                      is_hard ? " as root" : "", ", or `ulimit ", is_size ? "-f" : "-n", "` before it is started");
}

}  // namespace

absl::Status ErrnoToStatus(int error, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", std::generic_category().message(error), LimitAdvice(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EEXIST:
    case EADDRINUSE:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // a socket, or a pipe that nobody reads, in the place of a file
    case EINVAL:
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace holdfast
