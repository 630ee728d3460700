#pragma once
// The user's own bytes inside an error message.

#include <cstddef>
#include <string>

namespace holdfast {

/// `text` on one line: control characters as \xNN, and "..." for what is beyond `max_bytes` (whole UTF-8 characters).
std::string Printable(const std::string& text, size_t max_bytes);

}  // namespace holdfast
