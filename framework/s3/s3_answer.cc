#include "framework/s3/s3_answer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

constexpr size_t kMaxMessageBytes = 300;
constexpr std::chrono::milliseconds kFirstBackoff{100}, kLongestBackoff{20'000};
constexpr std::chrono::seconds kLongestRetryAfter{60};

std::string ForPeople(absl::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, kMaxMessageBytes)) {
    clean += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : ' ';
  }
  return std::string(absl::StripAsciiWhitespace(clean));
}

bool IsOneOf(absl::string_view code, std::initializer_list<absl::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

absl::StatusCode CodeOf(int status, const S3Error& error, bool speaks_s3) {
  if (MayPass(status, error, speaks_s3)) return absl::StatusCode::kUnavailable;
  if (status == 507 || IsOneOf(error.code, {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (IsOneOf(error.code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "AccessDenied",
                           "SignatureDoesNotMatch"})) {
    return absl::StatusCode::kPermissionDenied;  // some come with status 400
  }
  if (IsOneOf(error.code, {"NoSuchUpload", "NoSuchKey"})) return absl::StatusCode::kNotFound;
  if (error.code == "NoSuchBucket") return absl::StatusCode::kFailedPrecondition;
  switch (status) {
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kAborted;
    case 412:
      return absl::StatusCode::kAlreadyExists;
    case 416:
      return speaks_s3 ? absl::StatusCode::kOutOfRange : absl::StatusCode::kFailedPrecondition;
    case 501:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

}  // namespace

S3Error ParseS3Error(absl::string_view body) {
  S3Error error;
  const absl::Status scanned = ScanXml(body, [&](absl::string_view path, absl::string_view text) {
    if (path == "Error/Code") error.code = ForPeople(text);
    if (path == "Error/Message") error.message = ForPeople(text);
    return absl::OkStatus();
  });
  if (!scanned.ok() && error.code.empty()) return {"", ""};  // a web page of something in between
  return error;
}

bool MayPass(int status, const S3Error& error, bool speaks_s3) {
  if (status == 408 || status == 425 || status == 429) return true;
  if (status >= 500 && status != 501 && status != 505 && status != 507) return true;
  if (!speaks_s3 && (status / 100 == 3 || status == 404)) return true;
  return IsOneOf(error.code, {"RequestTimeout", "InternalError", "ServiceUnavailable", "SlowDown", "BadDigest",
                              "XAmzContentSHA256Mismatch", "IncompleteBody"});
}

absl::Status StatusOfError(int status, const S3Error& error, bool speaks_s3) {
  std::string message = absl::StrCat("HTTP status ", status);
  if (!error.code.empty()) absl::StrAppend(&message, ", ", error.code);
  if (!error.message.empty()) absl::StrAppend(&message, ": ", error.message);
  if (!speaks_s3) absl::StrAppend(&message, ", not in the words of S3");
  return absl::Status(CodeOf(status, error, speaks_s3), message);
}

absl::Status StatusOfAnswer(const HttpAnswer& answer, bool is_head) {
  if (answer.status >= 200 && answer.status < 300) return absl::OkStatus();
  const S3Error error = ParseS3Error(answer.body);
  const std::string region = answer.Header("x-amz-bucket-region");
  // S3 answers HEAD without a body. A 404 without one to another call comes from something in between.
  const bool silent = answer.body.empty() && answer.status / 100 != 3 && (is_head || answer.status != 404);
  const bool speaks_s3 = !error.code.empty() || !region.empty() || silent;
  const absl::Status status = StatusOfError(answer.status, error, speaks_s3);
  std::string more;
  if (!region.empty() && (answer.status / 100 == 3 || answer.status == 400)) {
    absl::StrAppend(&more, " (the bucket lies in region ", ForPeople(region), ")");
  }
  const std::string id = answer.Header("x-amz-request-id");
  if (!id.empty()) absl::StrAppend(&more, " (request ", ForPeople(id), ")");
  return absl::Status(status.code(), absl::StrCat(status.message(), more));
}

std::chrono::milliseconds Backoff(int next, uint64_t random, std::chrono::seconds retry_after) {
  const int doublings = std::min(next - 1, 16);
  const auto bound = std::min<std::chrono::milliseconds>(kFirstBackoff * (int64_t{1} << doublings), kLongestBackoff);
  const std::chrono::milliseconds jittered{random % static_cast<uint64_t>(bound.count() + 1)};
  return std::max<std::chrono::milliseconds>(jittered, std::min(retry_after, kLongestRetryAfter));
}

}  // namespace holdfast
