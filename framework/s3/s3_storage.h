#pragma once
// Storage in a bucket of S3 or of anything that speaks its protocol. Requests are signed by ourselves (AWS Signature
// Version 4) and carried by libcurl. Large objects go up in parts, in parallel; nothing is ever replaced: objects are
// created with If-None-Match: *, and where a server does not know that (501), after a look, which leaves a moment in
// which two writers can collide. Errors that may pass (`MayPass`, timeouts, broken connections) are tried again with
// exponential backoff and jitter for as long as S3Options say; then Unavailable, and then only whether the object was
// made is unknown: a caller that tries once more may get AlreadyExists from its own work. DataLoss is said only where
// an answer of S3 has shown it: an object that is shorter than it was, or another.
//
// Staged files must be gone before their storage is.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "framework/s3/s3_credentials.h"
#include "framework/storage/storage.h"

namespace holdfast {

struct S3Options {
  std::string bucket, prefix;  // of "s3://bucket/prefix"
  std::string endpoint;        // "http://127.0.0.1:9000"; empty = AWS, https
  std::string region;          // "us-east-1"
  /// https://bucket.host/key, not https://host/bucket/key. Nothing: on AWS, for names without dots.
  std::optional<bool> by_host;
  std::string ca_file;  // PEM, to verify the server's certificate with; empty = the system's
  std::shared_ptr<S3CredentialSource> credentials;    // required
  std::string staging_directory;                      // where files are made before they go up; Stage needs it
  uint64_t part_bytes = 16ull << 20;                  // of multipart uploads; raised where 10,000 parts would not do
  int connections = 8;                                // at once, of all that is under way
  std::chrono::milliseconds request_timeout{60'000};  // of one request (large ones: and 1 s per 128 KiB), of silence
  std::chrono::milliseconds retry_for{300'000};       // of one call, from its first attempt
  std::stop_token stop = {};                          // once requested, every call is Cancelled soon
};

/// Checks that the bucket can be listed: a wrong name, key or endpoint shows here.
absl::StatusOr<std::unique_ptr<Storage>> OpenS3Storage(const S3Options& options);

}  // namespace holdfast
