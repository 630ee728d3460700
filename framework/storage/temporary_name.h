#pragma once
// Names of temporary files: ".NAME.tmp-XXXXXXXXXXXX", twelve hexadecimal digits. No object has such a name.

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
bool IsTemporaryName(absl::string_view file_name);
/// NAME of a temporary name.
absl::string_view NameOfTemporary(absl::string_view temporary);

}  // namespace holdfast
