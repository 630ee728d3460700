#include "framework/base/format_bytes.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace holdfast {

std::string FormatBytes(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  if (std::abs(bytes) < 1023.5) return absl::StrFormat("%.0f B", bytes);
  const char* unit = "KMGTPE";
  double scale = 1024;
  while (std::abs(bytes) >= 1023.95 * scale && unit[1] != 0) {
    scale *= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %ciB", bytes / scale, *unit);
}

}  // namespace holdfast
