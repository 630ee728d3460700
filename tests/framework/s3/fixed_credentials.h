#pragma once
// Credentials that do not change.

#include <memory>
#include <utility>

#include "framework/s3/s3_credentials.h"

namespace holdfast {

inline std::shared_ptr<S3CredentialSource> FixedCredentials(S3Credentials credentials) {
  return RefreshedS3Credentials([credentials = std::move(credentials)] { return credentials; });
}

}  // namespace holdfast
