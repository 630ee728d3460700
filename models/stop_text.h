#pragma once
// Text that comes in pieces, up to the first of some strings, which may begin in one piece and end in another.

#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

class StopText {
 public:
  /// None of `stops` is empty.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// What of the text up to here is sure to come before a stop, and was not returned yet.
  std::string Add(std::string_view piece);
  bool stopped() const { return stopped_; }
  /// What was held back because it might have been the beginning of a stop, once no more text comes.
  std::string Rest();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace holdfast
