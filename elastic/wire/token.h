#pragma once
// The secret all parts of a run share when they talk beyond one machine.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

inline constexpr size_t kMaxTokenBytes = 4096;

/// The token in a file, without white space around it. The file must be a regular one of at most kMaxTokenBytes that
/// nobody but its owner can read (mode 0600 or stricter), or one of root's that a group may read and nobody write (mode
/// 0440, as Kubernetes mounts secrets for a pod with fsGroup), and the token printable ASCII without spaces: it travels
/// as an HTTP header. PermissionDenied or InvalidArgument say what to do; no message contains the token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

/// The same; if there is no such file, or an empty one, which a process that died has left, one with a new secret is
/// made, mode 0600, whole or not at all, and survives a loss of power.
absl::StatusOr<std::string> MakeTokenFile(const std::string& path);

/// True if both are equal. The time it takes depends on the length of `given` only.
bool TokensEqual(absl::string_view given, absl::string_view expected);

/// "Bearer <token>"
std::string AuthorizationHeader(const std::string& token);

}  // namespace holdfast
