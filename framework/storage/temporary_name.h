#pragma once
// Names of temporary files: ".NAME.tmp-XXXXXXXXXXXX", twelve hexadecimal digits. No object has such a name. An object's
// NAME is one that CheckObjectName (storage.h) allows; a file elsewhere may have any.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// For the object with this last component; the digits are random and not 0. Not from the process id: machines may
/// share the directory.
absl::StatusOr<std::string> RandomTemporaryName(const std::string& leaf);
/// The one with digits 0: who has created it claims the name (local_storage.h, step 4).
std::string ClaimName(const std::string& leaf);
/// Of an object, its claim included.
bool IsTemporaryName(absl::string_view file_name);
/// Of `leaf`, any file's name, and not its claim.
bool IsTemporaryNameOf(absl::string_view file_name, const std::string& leaf);
/// NAME of a temporary name.
absl::string_view NameOfTemporary(absl::string_view temporary);

}  // namespace holdfast
