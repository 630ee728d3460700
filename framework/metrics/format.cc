#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/metrics/progress.h"

namespace holdfast {

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = std::llround(std::min(seconds, 1e15));
  if (whole < 60) return absl::StrFormat("%d s", whole);
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
  constexpr int64_t kYear = int64_t{365} * 86400;
  if (whole >= 2 * kYear) return absl::StrFormat("%d years", whole / kYear);
  return absl::StrFormat("%d d %02d h", whole / 86400, whole % 86400 / 3600);
}

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return "?";
  const double size = std::abs(count);
  if (size < 999.5) {
    const int decimals = size == std::floor(size) || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    return absl::StrFormat("%.*f", decimals, count);
  }
  const char* unit = "KMBT";
  double scale = 1e3;
  while (size >= 999.5 * scale && unit[1] != 0) {
    scale *= 1e3;
    ++unit;
  }
  const double scaled = size / scale;
  const int decimals = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %c", decimals, count / scale, *unit);
}

}  // namespace holdfast
