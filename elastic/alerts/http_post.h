#pragma once
// One HTTP POST with libcurl.

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace holdfast {

struct HttpPost {
  std::string url, body;  // JSON
  std::chrono::milliseconds timeout{5000};
  bool allow_plain_http = false;
  /// Asked about once a second; true ends the transfer.
  std::function<bool()> give_up;
};

/// OK for a 2xx answer. Unavailable: another attempt may help (network, 429, 5xx). FailedPrecondition: it will not.
/// No message holds the URL. Follows no redirect: the URL or the body is a secret.
absl::Status Perform(const HttpPost& post);

}  // namespace holdfast
