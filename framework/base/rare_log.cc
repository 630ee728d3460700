#include "framework/base/rare_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

std::optional<std::string> RareLog::Line(Time now, absl::string_view what) {
  if (!began_.has_value()) began_ = now;
  if (now - *began_ < patience_ || (said_.has_value() && now - *said_ < wait_)) {
    ++left_out_;
    return std::nullopt;
  }
  const bool again = said_.has_value();
  said_ = now;
  const int64_t left_out = std::exchange(left_out_, 0);
  wait_ = left_out > 0 && again ? std::min(2 * wait_, longest_) : interval_;
  if (!again || left_out == 0) return std::string(what);
  return absl::StrCat(what, " (and ", left_out, " times before, since the last line)");
}

void RareLog::Reset() {
  began_.reset();
  said_.reset();
  left_out_ = 0;
  wait_ = interval_;
}

}  // namespace holdfast
