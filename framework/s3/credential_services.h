#pragma once
// Services that hand out credentials for a while: AWS's Security Token Service for a web identity, the one of a
// container (ECS, EKS Pod Identity), the metadata service of an EC2 instance (version 2). Proxies are passed by where a
// service is of this machine. Unavailable: the service does not answer now; any other error says what it has refused.

#include <string>

#include "absl/status/statusor.h"
#include "framework/s3/s3_credentials.h"

namespace holdfast {

struct WebIdentity {
  std::string endpoint;    // "https://sts.eu-west-1.amazonaws.com"
  std::string token_file;  // read for each request: whoever wrote it replaces it before it expires
  std::string role_arn, session_name;
  std::string ca_file{};  // see S3Options
};
/// By AssumeRoleWithWebIdentity.
absl::StatusOr<S3Credentials> CredentialsOfWebIdentity(const WebIdentity& identity);

struct ContainerCredentials {
  std::string url;
  std::string authorization{};       // goes into that header; may be empty
  std::string authorization_file{};  // holds it instead; read for each request
};
/// InvalidArgument if the URL is neither https nor at an address that is this machine's or its container service's.
absl::StatusOr<S3Credentials> CredentialsOfContainer(const ContainerCredentials& container);

/// Of the role of this instance. NotFound if there is no such service, or the instance has no role.
/// `endpoint`: "http://169.254.169.254".
absl::StatusOr<S3Credentials> CredentialsOfInstance(const std::string& endpoint);

}  // namespace holdfast
