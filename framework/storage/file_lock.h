#pragma once
// The lock on a temporary file that tells whether its writer lives.

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "framework/storage/local_storage.h"
#include "framework/storage/open_at.h"

namespace holdfast {

enum class LockResult { kLocked, kHeldByOther, kCannotTell };

/// Tries to lock the file, open for writing at `fd`, for as long as that is open. kCannotTell where locks do not work
/// or may not be seen by all machines that use the file system.
LockResult TryLock(int fd, FileSystemKind file_system);

/// Creates the file `name` in `directory` and locks it, where that tells anything. AlreadyExists; Aborted if a Sweep
/// took it for abandoned in between and has removed it. `what` is for messages; `mode` as open() has it.
absl::StatusOr<FileDescriptor> CreateLocked(int directory, const std::string& name, FileSystemKind file_system,
                                            const std::string& what, mode_t mode = 0666);

}  // namespace holdfast
