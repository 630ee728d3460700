#pragma once
// Temporary files that their writers, killed, have left behind.

#include <string>

#include "absl/status/status.h"
#include "framework/storage/local_storage.h"

namespace holdfast {

/// Removes the temporary file `name` in `directory`, which is open, if nobody writes it any more: if its lock is free
/// or, where locks do not tell, if it has not changed for a day. `path` is for messages.
absl::Status RemoveIfAbandoned(int directory, const std::string& name, const std::string& path,
                               FileSystemKind file_system);

}  // namespace holdfast
