#pragma once
// Who we are to S3, and where that is written down.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

struct S3Credentials {
  std::string access_key_id, secret_access_key;
  std::string session_token;  // may be empty
};

/// From AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from profile AWS_PROFILE ("default") of
/// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials). NotFound, saying where was looked, if there are none.
absl::StatusOr<S3Credentials> FindS3Credentials();

/// The credentials of `profile` in the text of a credentials file. NotFound if there is no such profile,
/// InvalidArgument if it lacks one of its keys. Messages never quote the text: it is full of secrets.
absl::StatusOr<S3Credentials> ParseCredentialsFile(absl::string_view text, absl::string_view profile);

}  // namespace holdfast
