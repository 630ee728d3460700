#pragma once
// What is looked at before a text is given to a JSON parser.

#include <string_view>

namespace holdfast {

/// Whether arrays and objects nest deeper than `depth_max`; exact for well-formed JSON.
inline bool JsonNestsDeeperThan(std::string_view json, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > depth_max) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

/// Where a zero byte is, or npos. No JSON has one, and nlohmann's parser takes it for the end of the text.
inline size_t FindZeroByte(std::string_view json) { return json.find('\0'); }

}  // namespace holdfast
