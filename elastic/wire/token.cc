#include "elastic/wire/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

// Asks the open file, not the path: the path may be somebody else's file a moment later.
absl::Status CheckPrivate(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  const bool is_mounted_for_a_group = info.st_uid == 0 && (info.st_mode & 07777) == 0440;
  if ((info.st_mode & 077) != 0 && !is_mounted_for_a_group) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s: mode %04o: other users can read the token; run: chmod 600 %s", path, info.st_mode & 07777, path));
  }
  if (info.st_uid != geteuid() && geteuid() != 0 && info.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": belongs to another user"));
  }
  return absl::OkStatus();
}

// Reads one byte more than is allowed, so that a file which is too long shows.
absl::StatusOr<std::string> ReadAtMost(int fd, size_t max_bytes, const std::string& path) {
  std::string contents(max_bytes + 1, '\0');
  ASSIGN_OR_RETURN(const size_t got, ReadToEnd(fd, absl::MakeSpan(contents), path));
  if (got > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": longer than ", max_bytes, " bytes; not a token"));
  }
  contents.resize(got);
  return contents;
}

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  const FileDescriptor file = OpenFile(path, O_RDONLY | O_NONBLOCK);  // opening a pipe would wait for its writer
  if (!file.ok() && errno == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": user ", geteuid(), " cannot read it: make it theirs with mode 0600; on Kubernetes set ",
                     "securityContext.fsGroup of the pod and defaultMode 0440 of the secret"));
  }
  if (!file.ok()) return ErrnoToStatus(errno, path);
  RETURN_IF_ERROR(CheckPrivate(file.get(), path));
  ASSIGN_OR_RETURN(const std::string contents, ReadAtMost(file.get(), kMaxTokenBytes, path));
  std::string token(absl::StripAsciiWhitespace(contents));
  if (token.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no token in it"));
  const auto is_printable = [](char c) { return c > ' ' && c < 127; };
  if (!std::all_of(token.begin(), token.end(), is_printable)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a token is one line of printable ASCII; this makes one: openssl rand -hex 32"));
  }
  return token;
}

absl::StatusOr<std::string> MakeTokenFile(const std::string& path) {
  struct stat there;
  const bool exists = lstat(path.c_str(), &there) == 0;
  if (exists && !(S_ISREG(there.st_mode) && there.st_size == 0)) return ReadTokenFile(path);
  std::random_device random;
  std::string token;
  for (int i = 0; i < 8; ++i) absl::StrAppendFormat(&token, "%08x", random());
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::CreatePrivate(path));
  RETURN_IF_ERROR(file->Append(token));
  const absl::Status made = exists ? file->Commit() : file->CommitNew();
  if (absl::IsAlreadyExists(made)) return ReadTokenFile(path);  // another process has been quicker
  RETURN_IF_ERROR(made);
  return token;
}

bool TokensEqual(absl::string_view given, absl::string_view expected) {
  if (expected.empty()) return false;
  volatile unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^
                                                    static_cast<unsigned char>(expected[i % expected.size()]));
  }
  return difference == 0;
}

std::string AuthorizationHeader(const std::string& token) { return absl::StrCat("Bearer ", token); }

}  // namespace holdfast
