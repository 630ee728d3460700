#pragma once
// Who we are to S3: a key pair, and a source that has one at any time, however short each lives.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

struct S3Credentials {
  std::string access_key_id, secret_access_key;
  std::string session_token;                                             // may be empty
  std::optional<std::chrono::system_clock::time_point> expires_at = {};  // nothing = not known, or never

  bool operator==(const S3Credentials&) const = default;
};

/// Thread-safe. Messages never quote a secret.
class S3CredentialSource {
 public:
  virtual ~S3CredentialSource() = default;
  /// Those to sign with now. Unavailable: whoever has them does not answer now, try later. Any other error: there are
  /// none, and what would have to be done.
  virtual absl::StatusOr<S3Credentials> Get() = 0;
  /// A server has refused these. True: it asked again, and Get has others now.
  virtual bool Refused(const S3Credentials& credentials) = 0;
};

/// What `load` says, asked for again five minutes before they expire, and when they are refused. Where it fails then,
/// those that are still valid stay; Unavailable if there are none any more.
std::shared_ptr<S3CredentialSource> RefreshedS3Credentials(
    std::function<absl::StatusOr<S3Credentials>()> load,
    std::function<std::chrono::system_clock::time_point()> now = &std::chrono::system_clock::now);

/// OK if the key pair is there and printable, so that it fits into a header.
absl::Status CheckCredentials(const S3Credentials& credentials);

/// The credentials of `profile` in the text of a credentials file. NotFound if there is no such profile,
/// InvalidArgument if it lacks one of its keys.
absl::StatusOr<S3Credentials> ParseCredentialsFile(absl::string_view text, absl::string_view profile);

}  // namespace holdfast
