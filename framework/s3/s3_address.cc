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

std::string AwsEndpoint(const std::string& region) {
  const char* top = absl::StartsWith(region, "cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  return absl::StrCat("https://s3.", region, ".", top);
}

bool ByHost(const S3Options& options) {
  if (options.by_host.has_value()) return *options.by_host;
  // A certificate for *.s3... covers one label: buckets with dots are addressed by path.
  return options.endpoint.empty() && !absl::StrContains(options.bucket, '.');
}

}  // namespace

absl::StatusOr<S3Address> ResolveAddress(const S3Options& options) {
  RETURN_IF_ERROR(CheckBucket(options.bucket));
  if (options.region.empty() || !AllOf(options.region, "-")) {
    return absl::InvalidArgumentError(absl::StrCat("\"", options.region, "\" is not the name of a region"));
  }
  const std::string endpoint =
      options.endpoint.empty() ? AwsEndpoint(options.region) : std::string(absl::StripSuffix(options.endpoint, "/"));
  ASSIGN_OR_RETURN(const std::string host, HostOf(endpoint));
  if (!ByHost(options)) return S3Address{endpoint, host, absl::StrCat("/", options.bucket)};
  const size_t begin = endpoint.find("//") + 2;
  return S3Address{absl::StrCat(endpoint.substr(0, begin), options.bucket, ".", endpoint.substr(begin)),
                   absl::StrCat(options.bucket, ".", host), ""};
}

}  // namespace holdfast
