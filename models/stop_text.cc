#include "models/stop_text.h"

#include <algorithm>
#include <utility>

namespace holdfast {
namespace {

/// The longest end of `text` that is a beginning of `stop`, and not all of it.
size_t BeginningAtTheEnd(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

std::string StopText::Add(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  size_t sure = held_.size(), first = std::string::npos;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    sure = std::min(sure, held_.size() - BeginningAtTheEnd(held_, stop));
  }
  stopped_ = first != std::string::npos;
  std::string out = held_.substr(0, stopped_ ? first : sure);
  held_.erase(0, stopped_ ? held_.size() : sure);
  return out;
}

std::string StopText::Rest() { return std::exchange(held_, ""); }

}  // namespace holdfast
