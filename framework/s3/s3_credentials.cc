#include "framework/s3/s3_credentials.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "framework/base/files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string CredentialsPath() {
  std::string path = Environment("AWS_SHARED_CREDENTIALS_FILE");
  if (!path.empty()) return path;
  const std::string home = Environment("HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.aws/credentials");
}

void SetField(absl::string_view key, absl::string_view value, S3Credentials* credentials) {
  if (key == "aws_access_key_id") credentials->access_key_id = std::string(value);
  if (key == "aws_secret_access_key") credentials->secret_access_key = std::string(value);
  if (key == "aws_session_token") credentials->session_token = std::string(value);
}

}  // namespace

absl::StatusOr<S3Credentials> ParseCredentialsFile(absl::string_view text, absl::string_view profile) {
  S3Credentials credentials;
  bool inside = false, found = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      inside = absl::StripAsciiWhitespace(line.substr(1, line.size() - 2)) == profile;
      found = found || inside;
    } else if (const size_t equals = line.find('='); inside && equals != absl::string_view::npos) {
      SetField(absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, equals))),
               absl::StripAsciiWhitespace(line.substr(equals + 1)), &credentials);
    }
  }
  if (!found) return absl::NotFoundError(absl::StrCat("no profile [", profile, "]"));
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile [", profile, "] lacks ",
                     credentials.access_key_id.empty() ? "aws_access_key_id" : "aws_secret_access_key"));
  }
  return credentials;
}

absl::StatusOr<S3Credentials> FindS3Credentials() {
  const S3Credentials environment{Environment("AWS_ACCESS_KEY_ID"), Environment("AWS_SECRET_ACCESS_KEY"),
                                  Environment("AWS_SESSION_TOKEN")};
  const bool has_id = !environment.access_key_id.empty(), has_secret = !environment.secret_access_key.empty();
  if (has_id && has_secret) return environment;
  if (has_id || has_secret) {  // half of a pair is a slip, and another pair from a file would hide it
    return absl::InvalidArgumentError(has_id ? "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not"
                                             : "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not");
  }
  const std::string path = CredentialsPath();
  std::string profile = Environment("AWS_PROFILE");
  if (profile.empty()) profile = "default";
  const std::string nothing = "no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and ";
  if (path.empty()) return absl::NotFoundError(absl::StrCat(nothing, "without HOME there is no ~/.aws/credentials"));
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return Annotate(text.status(), absl::StrCat(nothing, "the credentials file cannot be read"));
  absl::StatusOr<S3Credentials> credentials = ParseCredentialsFile(*text, profile);
  if (!credentials.ok()) return Annotate(credentials.status(), absl::StrCat(nothing, path));
  return credentials;
}

}  // namespace holdfast
