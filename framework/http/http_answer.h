#pragma once
// What a server answers.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "framework/http/fields.h"

namespace holdfast {

struct HttpAnswer {
  int status = 0;
  Fields headers;  // names in lower case
  std::string body;
  size_t bytes_into = 0;
  std::optional<std::chrono::seconds> retry_after;

  /// The value of a header; empty if there is none.
  std::string Header(absl::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }
};

}  // namespace holdfast
