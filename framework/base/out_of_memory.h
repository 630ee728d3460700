#pragma once
// An allocation that failed, told apart from what else is ResourceExhausted (a full disk, too many open files): trying
// again soon does not help.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// ResourceExhausted.
absl::Status OutOfMemoryError(absl::string_view message);
/// Whether `status`, or the one it was copied from, is from OutOfMemoryError.
bool IsOutOfMemory(const absl::Status& status);
/// ResourceExhausted otherwise: a full disk, a quota, too many open files. Somebody may make room.
bool IsOutOfRoom(const absl::Status& status);
/// A disk or a store may do later what it has failed to do: it has no room, does not answer, or refuses access, as a
/// file system that is read-only for a while.
bool MayPass(const absl::Status& status);

}  // namespace holdfast
