#pragma once
// Checks of the fields of one message from a peer. Each returns the value to store; the first one that is out of bounds
// decides the message's fate, named with its field.

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

class FieldCheck {
 public:
  explicit FieldCheck(const char* message) : message_(message) {}

  void Require(bool condition, const char* field, const std::string& problem) {
    if (condition || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(message_, ".", field, ": ", problem));
  }
  int64_t Range(int64_t value, int64_t min, int64_t max, const char* field) {
    if (value < min || value > max) Require(false, field, absl::StrCat(value, " is not in ", min, "..", max));
    return value;
  }
  int RangeInt(int64_t value, int min, int max, const char* field) {
    return static_cast<int>(Range(value, min, max, field));
  }
  int64_t Count(int64_t value, const char* field) { return Range(value, 0, INT64_MAX, field); }
  double Seconds(double value, const char* field) {
    Require(std::isfinite(value) && value >= 0, field, "not a duration");
    return value;
  }
  /// That a worker has measured. What follows from several (sums, ratios, a number of microbatches) is finite, too.
  double MeasuredSeconds(double value, const char* field) {
    constexpr double kMost = 1e9;  // 31 years
    Require(!(value > kMost), field, "longer than anything has taken");
    return Seconds(value, field);
  }
  std::string Text(const std::string& value, size_t max_bytes, const char* field) {
    if (value.size() <= max_bytes) return value;
    Require(false, field, absl::StrCat(value.size(), " bytes; at most ", max_bytes, " are accepted"));
    return {};
  }
  template <typename List>
  bool Length(const List& list, int max, const char* field) {
    if (list.size() <= max) return true;
    Require(false, field, absl::StrCat(list.size(), " entries; at most ", max, " are accepted"));
    return false;
  }
  template <typename List>
  std::vector<int64_t> Counts(const List& list, int max, const char* field) {
    if (!Length(list, max, field)) return {};
    for (const int64_t value : list) Count(value, field);
    return {list.begin(), list.end()};
  }
  /// An enum whose values are 0..last on both sides.
  template <typename Enum>
  Enum Value(int value, Enum last, const char* field) {
    if (value < 0 || value > static_cast<int>(last)) Require(false, field, absl::StrCat("unknown value ", value));
    return static_cast<Enum>(value);
  }

  template <typename Message>
  absl::StatusOr<Message> Done(Message message) const {
    if (!status_.ok()) return status_;
    return message;
  }

 private:
  const char* message_;
  absl::Status status_;
};

}  // namespace holdfast
