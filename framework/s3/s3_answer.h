#pragma once
// What an answer of S3 means: which errors may pass, and what the others tell the caller to do. Pure.

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "framework/http/http_answer.h"

namespace holdfast {

/// <Error><Code>..</Code><Message>..</Message></Error>; empty where the body says nothing of the kind.
struct S3Error {
  std::string code, message;
};

/// Shortened, printable.
S3Error ParseS3Error(absl::string_view body);

/// Another attempt may succeed: 408, 425, 429, 5xx but 501, 505 and 507, the codes that say so under another status,
/// and what is no answer of S3 at all (`speaks_s3` false): redirects and 404 of something in between.
bool MayPass(int status, const S3Error& error, bool speaks_s3 = true);

/// OK for 2xx, else, with status, code and message of the server:
///   NotFound 404 of an object or upload · PermissionDenied 401, 403 · AlreadyExists 412 · Aborted 409
///   Unimplemented 501 · OutOfRange 416 · ResourceExhausted: no space, over a quota · Unavailable: may pass
///   FailedPrecondition: the rest, also a bucket that is not there and redirects, which name the bucket's region
/// Never InvalidArgument or DataLoss: no answer says that an object is damaged.
/// `is_head`: of a HEAD, whose 404 has no body; a 404 without a body of another call may pass.
absl::Status StatusOfAnswer(const HttpAnswer& answer, bool is_head);

/// The same for an <Error> that arrives with status 200, as CompleteMultipartUpload's may.
absl::Status StatusOfError(int status, const S3Error& error, bool speaks_s3 = true);

/// How long to wait before attempt `next` (1 = the second): exponential from 100 ms to 20 s with full jitter, `random`
/// being uniform; at least what the server asked for, as long as that is reasonable (60 s).
std::chrono::milliseconds Backoff(int next, uint64_t random, std::chrono::seconds retry_after);

}  // namespace holdfast
