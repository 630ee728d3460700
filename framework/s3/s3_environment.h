#pragma once
// What the environment says of S3, in the variables of AWS's own tools.

#include <memory>

#include "absl/status/statusor.h"
#include "framework/s3/s3_storage.h"

namespace holdfast {

/// Fills in what is empty:
///   endpoint     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL
///   region       AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
///   ca_file      AWS_CA_BUNDLE
///   credentials  a source that asks, whenever they are needed, the first of these that is there:
///                AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN;
///                AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN (AWS_ROLE_SESSION_NAME, AWS_ENDPOINT_URL_STS);
///                profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials);
///                AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI (AWS_CONTAINER_AUTHORIZATION_TOKEN, _FILE);
///                the metadata service of the instance, unless AWS_EC2_METADATA_DISABLED is "true"
///                (AWS_EC2_METADATA_SERVICE_ENDPOINT).
void FillFromEnvironment(S3Options* options);

/// From the first of those, now. NotFound, saying where was looked, if there are none.
absl::StatusOr<S3Credentials> FindS3Credentials(const std::string& region, const std::string& ca_file);

}  // namespace holdfast
