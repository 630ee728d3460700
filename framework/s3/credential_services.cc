#include "framework/s3/credential_services.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/http/http_connection.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/s3_page.h"
#include "framework/s3/sigv4.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

constexpr size_t kMaxTokenBytes = 64u << 10, kMaxAnswerBytes = 64u << 10;
constexpr std::chrono::milliseconds kServiceTimeout{10'000}, kInstanceTimeout{1'000};
constexpr int kInstanceAttempts = 2;
constexpr char kStatusWords[] = "HTTP status ";  // of a service that is there

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> token = ReadFile(path, kMaxTokenBytes);
  if (!token.ok()) return absl::UnavailableError(token.status().message());  // it may be being replaced
  absl::StripAsciiWhitespace(&*token);
  if (token->empty()) return absl::UnavailableError(absl::StrCat(path, ": is empty"));
  return token;
}

/// Any answer that says 2xx; what another says is in the status, never in its message, but for a code of AWS's.
absl::StatusOr<HttpAnswer> Ask(HttpRequest request) {
  request.max_answer_bytes = kMaxAnswerBytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpConnection> connection, HttpConnection::Create());
  ASSIGN_OR_RETURN(HttpAnswer answer, connection->Perform(request));
  if (answer.status >= 200 && answer.status < 300) return answer;
  std::string code;
  ScanXml(answer.body, [&](absl::string_view path, absl::string_view text) {
    if (path == "ErrorResponse/Error/Code" && text.size() < 64) code = absl::StrCat(", ", text);
    return absl::OkStatus();
  }).IgnoreError();
  const std::string message = absl::StrCat(kStatusWords, answer.status, code);
  if (MayPass(answer.status, {})) return absl::UnavailableError(message);
  return answer.status == 404 ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

absl::Status TakeExpiry(absl::string_view text, S3Credentials* credentials) {
  credentials->expires_at = ParseIsoTime(text);
  if (credentials->expires_at.has_value() || text.empty()) return absl::OkStatus();
  return absl::UnavailableError("the answer has an Expiration that is no time");
}

/// {"AccessKeyId": .., "SecretAccessKey": .., "Token": .., "Expiration": ..}
absl::StatusOr<S3Credentials> ParseCredentialsJson(const std::string& text) {
  const nlohmann::json json = ParseJson(text).value_or(nullptr);
  const auto field = [&](const char* name) -> std::string {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
  };
  S3Credentials credentials{field("AccessKeyId"), field("SecretAccessKey"), field("Token")};
  if (!CheckCredentials(credentials).ok()) return absl::UnavailableError("the answer has no credentials in it");
  RETURN_IF_ERROR(TakeExpiry(field("Expiration"), &credentials));
  return credentials;
}

/// "http://169.254.170.2:80/x" -> "169.254.170.2"
std::string HostOfUrl(absl::string_view url) {
  const size_t begin = url.find("://");
  absl::string_view host = begin == absl::string_view::npos ? "" : url.substr(begin + 3);
  host = host.substr(0, host.find('/'));
  if (absl::StartsWith(host, "[")) return std::string(host.substr(1, host.find(']') - 1));
  return std::string(host.substr(0, host.find(':')));
}

/// Where a secret may go without TLS: this machine, and the addresses of ECS and EKS on it.
bool IsOfThisMachine(const std::string& host) {
  for (const char* known : {"localhost", "127.0.0.1", "::1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"}) {
    if (host == known) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<S3Credentials> CredentialsOfWebIdentity(const WebIdentity& identity) {
  const auto named = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("asking ", identity.endpoint, " for the role ", identity.role_arn));
  };
  const absl::StatusOr<std::string> token = ReadToken(identity.token_file);
  if (!token.ok()) return named(token.status());
  const std::string form = CanonicalQuery({{"Action", "AssumeRoleWithWebIdentity"},
                                           {"Version", "2011-06-15"},
                                           {"RoleArn", identity.role_arn},
                                           {"RoleSessionName", identity.session_name},
                                           {"WebIdentityToken", *token}});
  const MemoryBody body(form);
  HttpRequest request;
  request.method = "POST";
  request.url = identity.endpoint + "/";
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = &body;
  request.timeout = kServiceTimeout;
  request.ca_file = identity.ca_file;
  const absl::StatusOr<HttpAnswer> answer = Ask(std::move(request));
  if (!answer.ok()) return named(answer.status());
  S3Credentials credentials;
  std::string expiry;
  const absl::Status scanned = ScanXml(answer->body, [&](absl::string_view path, absl::string_view text) {
    if (absl::EndsWith(path, "/Credentials/AccessKeyId")) credentials.access_key_id = std::string(text);
    if (absl::EndsWith(path, "/Credentials/SecretAccessKey")) credentials.secret_access_key = std::string(text);
    if (absl::EndsWith(path, "/Credentials/SessionToken")) credentials.session_token = std::string(text);
    if (absl::EndsWith(path, "/Credentials/Expiration")) expiry = std::string(text);
    return absl::OkStatus();
  });
  if (!scanned.ok() || !CheckCredentials(credentials).ok()) {
    return named(absl::UnavailableError("the answer has no credentials in it"));
  }
  const absl::Status expires = TakeExpiry(expiry, &credentials);
  if (!expires.ok()) return named(expires);
  return credentials;
}

absl::StatusOr<S3Credentials> CredentialsOfContainer(const ContainerCredentials& container) {
  const bool here = IsOfThisMachine(HostOfUrl(container.url));
  if (!here && !absl::StartsWith(container.url, "https://")) {
    return absl::InvalidArgumentError(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI: expected https, or an address of this machine or of its container "
        "service");
  }
  HttpRequest request;
  request.method = "GET";
  request.url = container.url;
  request.timeout = kServiceTimeout;
  request.direct = here;
  std::string authorization = container.authorization;
  if (!container.authorization_file.empty()) {
    ASSIGN_OR_RETURN(authorization, ReadToken(container.authorization_file));
  }
  if (!authorization.empty()) request.headers.emplace_back("authorization", authorization);
  const absl::StatusOr<HttpAnswer> answer = Ask(std::move(request));
  if (!answer.ok()) return Annotate(answer.status(), "asking the container's service for credentials");
  return ParseCredentialsJson(answer->body);
}

absl::StatusOr<S3Credentials> CredentialsOfInstance(const std::string& endpoint) {
  constexpr char kRoles[] = "/latest/meta-data/iam/security-credentials/";
  const auto ask = [&](const char* method, const std::string& path, const Fields& headers) {
    absl::StatusOr<HttpAnswer> answer = absl::UnavailableError("");
    for (int attempt = 0; attempt < kInstanceAttempts && absl::IsUnavailable(answer.status()); ++attempt) {
      const MemoryBody nothing("");
      HttpRequest request;
      request.method = method;
      request.url = endpoint + path;
      request.headers = headers;
      if (request.method == "PUT") request.body = &nothing;
      request.timeout = kInstanceTimeout;
      request.direct = true;
      answer = Ask(std::move(request));
    }
    return answer;
  };
  const absl::StatusOr<HttpAnswer> token =
      ask("PUT", "/latest/api/token", {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}});
  if (absl::IsUnavailable(token.status()) && absl::StartsWith(token.status().message(), kStatusWords)) {
    return Annotate(token.status(), "asking the metadata service for a token");  // it is asked by too many
  }
  if (!token.ok()) {
    return absl::NotFoundError(absl::StrCat("no metadata service at ", endpoint, ": ", token.status().message()));
  }
  const Fields headers = {{"x-aws-ec2-metadata-token", token->body}};
  absl::StatusOr<HttpAnswer> role = ask("GET", kRoles, headers);
  if (absl::IsNotFound(role.status())) return absl::NotFoundError("this instance has no role");
  if (!role.ok()) return Annotate(role.status(), "asking the metadata service for the role of this instance");
  const absl::string_view name = absl::StripAsciiWhitespace(role->body.substr(0, role->body.find('\n')));
  const absl::StatusOr<HttpAnswer> answer = ask("GET", kRoles + UriEncode(name, /*keep_slashes=*/false), headers);
  if (!answer.ok()) return Annotate(answer.status(), absl::StrCat("asking the metadata service for the role ", name));
  return ParseCredentialsJson(answer->body);
}

}  // namespace holdfast
