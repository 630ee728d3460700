#pragma once
// Text for an XML or HTML file.

#include <string>

namespace holdfast {

/// Markup escaped, control characters (which XML cannot hold) left out.
inline std::string XmlText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace holdfast
