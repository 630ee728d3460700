#pragma once
// One HTTP connection, kept open between requests: libcurl's easy handle behind our types. Redirects are not followed,
// certificates are verified, and nothing a server says is taken without a bound.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/http/body_source.h"
#include "framework/http/fields.h"
#include "framework/http/http_answer.h"

namespace holdfast {

struct HttpRequest {
  std::string method, url;
  Fields headers;
  const BodySource* body = nullptr;  // of PUT and POST
  std::chrono::milliseconds timeout{60'000};
  std::string ca_file;              // empty = the system's certificates
  std::string cert_file, key_file;  // PEM, to show to the server; empty = none
  bool tls_only = false;
  bool direct = false;      // whatever http_proxy says
  bool secret_url = false;  // no message holds anything of it, nor of the answer
  /// Asked about once a second, may be empty; true ends the request (Unavailable).
  std::function<bool()> give_up = {};

  // The body of a successful answer goes here if it is set (and no byte beyond it is taken), else into the answer.
  std::optional<absl::Span<std::byte>> into;
  size_t max_answer_bytes = 16u << 20;
  bool discard_answer = false;  // but its status and headers
};

/// Thread-safety: none.
class HttpConnection {
 public:
  static absl::StatusOr<std::unique_ptr<HttpConnection>> Create();
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  /// Any answer, whatever its status. Unavailable: there was none, or it broke off; another attempt may help.
  /// FailedPrecondition: none ever will be (a certificate that cannot be verified, an answer that is larger than
  /// allowed), InvalidArgument: no such URL; an error of the body's Read as it is.
  absl::StatusOr<HttpAnswer> Perform(const HttpRequest& request);

 private:
  explicit HttpConnection(void* curl) : curl_(curl) {}
  void* curl_;  // CURL*
};

}  // namespace holdfast
