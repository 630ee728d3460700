#include "framework/base/clip_text.h"

namespace holdfast {

std::string ClipText(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t length = max_bytes;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  for (int back = 0; back < 3 && length > 0 && continues(length); ++back) --length;
  return std::string(text.substr(0, length));
}

}  // namespace holdfast
