#include "framework/config/printable.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace holdfast {

std::string Printable(const std::string& text, size_t max_bytes) {
  size_t end = text.size();
  if (end > max_bytes) {
    end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  std::string line;
  for (const char c : text.substr(0, end)) {
    if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&line, "\\x%02x", c);
    } else {
      line += c;
    }
  }
  return end < text.size() ? line + "..." : line;
}

}  // namespace holdfast
