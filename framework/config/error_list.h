#pragma once
// Collects everything that is wrong with a config and makes one message of it.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {

/// Where a value came from.
struct Origin {
  int line = 0;             // in the file, from 1; 0 = not in the file
  int override_index = -1;  // which --set; -1 = none
};

class ErrorList {
 public:
  /// `name` of the file; `overrides` as the user wrote them.
  ErrorList(std::string name, std::vector<std::string> overrides)
      : name_(std::move(name)), overrides_(std::move(overrides)) {}

  /// `key` is "section.key", "section", or "" for the file as a whole.
  void Add(const Origin& origin, const std::string& key, const std::string& message);

  bool empty() const { return errors_.empty(); }

  /// Ok if empty; else InvalidArgument, one line per error: the file's in the order of its lines, those without a line
  /// after them, --set last. Of a flood of errors the first kMaxShown and the number of the others.
  absl::Status ToStatus() const;

  static constexpr size_t kMaxShown = 100;

 private:
  struct Error {
    Origin origin;
    std::string text;
  };

  std::string name_;
  std::vector<std::string> overrides_;
  std::vector<Error> errors_;
};

}  // namespace holdfast
