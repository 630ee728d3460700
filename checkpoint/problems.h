#pragma once
// Collects what is wrong, so that a user sees it all at once and not one thing per attempt.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"

namespace holdfast {

class Problems {
 public:
  void Add(std::string problem) {
    if (++count_ <= kShown) shown_.push_back(std::move(problem));
  }

  /// Ok, or InvalidArgument with the first problems and how many more there are.
  absl::Status ToStatus(const std::string& what) const {
    if (count_ == 0) return absl::OkStatus();
    const std::string more = count_ > kShown ? absl::StrCat("\n  and ", count_ - kShown, " more") : "";
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", Counted(count_, "problem"), "\n  ", absl::StrJoin(shown_, "\n  "), more));
  }

 private:
  static constexpr size_t kShown = 10;

  std::vector<std::string> shown_;
  size_t count_ = 0;
};

}  // namespace holdfast
