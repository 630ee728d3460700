#pragma once
// What a rendering may still do, so that a template that loops or grows without end is an error.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast::jinja {

class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_max_(steps), bytes_max_(bytes), steps_(steps), bytes_(bytes) {}

  /// Before `count` elements are looked at.
  absl::Status Step(int64_t count = 1) {
    if (count > steps_)
      return absl::ResourceExhaustedError(
          absl::StrCat("the template takes more than ", steps_max_, " steps: does it loop without end?"));
    steps_ -= count;
    return absl::OkStatus();
  }

  /// Before so many bytes are compared.
  absl::Status Compare(size_t bytes) { return Step(static_cast<int64_t>(bytes / kBytesPerStep)); }

  /// Before `bytes` bytes are made.
  absl::Status Take(int64_t bytes) {
    if (bytes > bytes_)
      return absl::ResourceExhaustedError(
          absl::StrCat("the template makes more than ", bytes_max_, " bytes: does it grow without end?"));
    bytes_ -= bytes;
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kBytesPerStep = 64;
  int64_t steps_max_, bytes_max_, steps_, bytes_;
};

}  // namespace holdfast::jinja
