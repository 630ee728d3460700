#pragma once
// Step 4 of local_storage.h: a temporary file gets its name, without replacing what is there.

#include <string>

#include "absl/status/status.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/local_storage.h"

namespace holdfast {

/// The file `temporary`, open at `fd`, becomes the object `chain` leads to; AlreadyExists if that name is taken. The
/// temporary name may remain, as a second one.
absl::Status TakeName(const DirectoryChain& chain, const std::string& temporary, int fd, FileSystemKind file_system);

}  // namespace holdfast
