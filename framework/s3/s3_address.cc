#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "framework/base/status.h"
#include "framework/s3/s3_client.h"

namespace holdfast {
namespace {

bool AllOf(absl::string_view text, absl::string_view extra) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(extra, c);
  });
}

absl::Status CheckBucket(absl::string_view bucket) {
  const bool fits = !bucket.empty() && bucket.size() <= 255 && AllOf(bucket, ".-_") && bucket.front() != '.';
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", bucket, "\" is not the name of a bucket"));
}

// "http://127.0.0.1:9000" -> its host and port, without a port that goes without saying: what libcurl and every other
// client put into the Host header.
absl::StatusOr<std::string> HostOf(absl::string_view endpoint) {
  const bool tls = absl::StartsWith(endpoint, "https://");
  if (!tls && !absl::StartsWith(endpoint, "http://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("the S3 endpoint \"", endpoint, "\" does not begin with http:// or https://"));
  }
  absl::string_view host = endpoint.substr(tls ? 8 : 7);
  if (host.empty() || !AllOf(host, ".-_:[]")) {  // no user, path or query
    return absl::InvalidArgumentError(           // not quoted: there may be a password in it
        "the S3 endpoint is not of the form http(s)://HOST or http(s)://HOST:PORT");
  }
  const absl::string_view default_port = tls ? ":443" : ":80";
  return std::string(absl::StripSuffix(host, default_port));
}

S3Address AwsAddress(const std::string& bucket, const std::string& region) {
  const char* top = absl::StartsWith(region, "cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const std::string service = absl::StrCat("s3.", region, ".", top);
  // A certificate for *.s3... covers one label: buckets with dots are addressed by path.
  if (absl::StrContains(bucket, '.')) return {"https://" + service, service, "/" + bucket};
  const std::string host = absl::StrCat(bucket, ".", service);
  return {"https://" + host, host, ""};
}

}  // namespace

absl::StatusOr<S3Address> ResolveAddress(const S3Options& options) {
  RETURN_IF_ERROR(CheckBucket(options.bucket));
  if (options.region.empty() || !AllOf(options.region, "-")) {
    return absl::InvalidArgumentError(absl::StrCat("\"", options.region, "\" is not the name of a region"));
  }
  if (options.endpoint.empty()) return AwsAddress(options.bucket, options.region);
  const absl::string_view endpoint = absl::StripSuffix(options.endpoint, "/");
  ASSIGN_OR_RETURN(const std::string host, HostOf(endpoint));
  return S3Address{std::string(endpoint), host, absl::StrCat("/", options.bucket)};
}

}  // namespace holdfast
