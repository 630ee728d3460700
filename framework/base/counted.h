#pragma once
// A number with its noun, for messages.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

/// "1 document", "2 documents"; "1 batch", "2 batches".
std::string Counted(int64_t count, absl::string_view what);

}  // namespace holdfast
