#pragma once
// AWS Signature Version 4 in an Authorization header, by the rules of S3: the path is encoded once and never
// normalised, and the SHA-256 of the payload is a header of its own. ("Signature Calculations for the Authorization
// Header: Transferring Payload in a Single Chunk", Amazon S3 API Reference.) Every header that is given is signed.

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/http/body_source.h"
#include "framework/http/fields.h"
#include "framework/s3/s3_credentials.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace holdfast {

struct SignableRequest {
  std::string method;          // "GET"
  std::string path;            // not encoded: "/bucket/a b"
  Fields query;                // not encoded
  Fields headers;              // "host" must be among them
  std::string payload_sha256;  // Sha256Hex of the body
};

struct SigningContext {
  S3Credentials credentials;
  std::string region;
  std::chrono::system_clock::time_point time;
};

/// Adds x-amz-content-sha256, x-amz-date, x-amz-security-token (if there is one) and authorization to the headers.
void SignRequest(const SigningContext& context, SignableRequest* request);

/// Everything but A-Z a-z 0-9 - . _ ~ as %XX, and "/" unless it is kept.
std::string UriEncode(absl::string_view text, bool keep_slashes);
/// "a=1&b=", sorted and encoded: what is signed and what is sent.
std::string CanonicalQuery(const Fields& query);
std::string Sha256Hex(absl::string_view bytes);
/// Of all of it, which is read for that.
absl::StatusOr<std::string> Sha256Hex(const BodySource& body);

/// SHA-256 of what comes in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(absl::string_view bytes);
  /// 64 hexadecimal digits. Once.
  std::string FinishHex();

 private:
  evp_md_ctx_st* context_;
};

}  // namespace holdfast
