#include "framework/s3/s3_environment.h"

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/s3/credential_services.h"

namespace holdfast {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The first that is set and not empty.
std::string FirstOf(std::initializer_list<const char*> names, const std::string& otherwise) {
  for (const char* name : names) {
    if (std::string value = Environment(name); !value.empty()) return value;
  }
  return otherwise;
}

std::string CredentialsPath() {
  const std::string home = Environment("HOME");
  return FirstOf({"AWS_SHARED_CREDENTIALS_FILE"}, home.empty() ? "" : absl::StrCat(home, "/.aws/credentials"));
}

/// `profile` of the file at `path`, which may be empty. NotFound if they are not there.
absl::StatusOr<S3Credentials> FromFile(const std::string& path, const std::string& profile) {
  if (path.empty()) return absl::NotFoundError("without HOME there is no ~/.aws/credentials");
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return Annotate(text.status(), "the credentials file cannot be read");
  absl::StatusOr<S3Credentials> credentials = ParseCredentialsFile(*text, profile);
  return credentials.ok() ? credentials : Annotate(credentials.status(), path);
}

std::string StsEndpoint(const std::string& region) {
  const char* top = absl::StartsWith(region, "cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  return FirstOf({"AWS_ENDPOINT_URL_STS"}, absl::StrCat("https://sts.", region, ".", top));
}

}  // namespace

absl::StatusOr<S3Credentials> FindS3Credentials(const std::string& region, const std::string& ca_file) {
  const S3Credentials environment{Environment("AWS_ACCESS_KEY_ID"), Environment("AWS_SECRET_ACCESS_KEY"),
                                  Environment("AWS_SESSION_TOKEN")};
  const bool has_id = !environment.access_key_id.empty(), has_secret = !environment.secret_access_key.empty();
  if (has_id && has_secret) return environment;
  if (has_id || has_secret) {  // half of a pair is a slip, and another pair from elsewhere would hide it
    return absl::InvalidArgumentError(has_id ? "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not"
                                             : "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not");
  }
  const std::string token_file = Environment("AWS_WEB_IDENTITY_TOKEN_FILE"), role = Environment("AWS_ROLE_ARN");
  if (!token_file.empty() && !role.empty()) {
    return CredentialsOfWebIdentity({.endpoint = StsEndpoint(region),
                                     .token_file = token_file,
                                     .role_arn = role,
                                     .session_name = FirstOf({"AWS_ROLE_SESSION_NAME"}, "holdfast"),
                                     .ca_file = ca_file});
  }
  const std::string profile = Environment("AWS_PROFILE");
  absl::StatusOr<S3Credentials> of_file = FromFile(CredentialsPath(), profile.empty() ? "default" : profile);
  if (of_file.ok() || !absl::IsNotFound(of_file.status())) return of_file;
  if (!profile.empty()) {  // whoever names one means no other credentials
    return absl::InvalidArgumentError(absl::StrCat("AWS_PROFILE is ", profile, ": ", of_file.status().message()));
  }

  const std::string relative = Environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = Environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative.empty() || !full.empty()) {
    return CredentialsOfContainer({.url = relative.empty() ? full : "http://169.254.170.2" + relative,
                                   .authorization = Environment("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
                                   .authorization_file = Environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")});
  }
  std::string instead = "AWS_EC2_METADATA_DISABLED is true";
  if (Environment("AWS_EC2_METADATA_DISABLED") != "true") {
    absl::StatusOr<S3Credentials> of_instance =
        CredentialsOfInstance(FirstOf({"AWS_EC2_METADATA_SERVICE_ENDPOINT"}, "http://169.254.169.254"));
    if (of_instance.ok() || !absl::IsNotFound(of_instance.status())) return of_instance;
    instead = std::string(of_instance.status().message());
  }
  return absl::NotFoundError(
      absl::StrCat("no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set; ",
                   of_file.status().message(), "; ", instead));
}

void FillFromEnvironment(S3Options* options) {
  if (options->endpoint.empty()) options->endpoint = FirstOf({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "");
  if (options->region.empty()) options->region = FirstOf({"AWS_REGION", "AWS_DEFAULT_REGION"}, "us-east-1");
  if (options->ca_file.empty()) options->ca_file = Environment("AWS_CA_BUNDLE");
  if (options->credentials == nullptr) {
    options->credentials = RefreshedS3Credentials(
        [region = options->region, ca_file = options->ca_file] { return FindS3Credentials(region, ca_file); });
  }
}

}  // namespace holdfast
