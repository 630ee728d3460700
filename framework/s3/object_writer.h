#pragma once
// New objects, of which there is one or none whatever is lost on the way.
//
// A write carries a random mark as metadata. An answer that says "there is one already" may be the echo of our own
// write whose first answer was lost (libcurl, too, sends again when a connection it had kept turns out to be closed):
// the object's mark tells. Only where it is another's is the name taken.

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "framework/http/body_source.h"
#include "framework/s3/s3_client.h"

namespace holdfast {

/// Thread-safe.
class ObjectWriter {
 public:
  explicit ObjectWriter(S3Client& client) : client_(client) {}

  /// One PUT. AlreadyExists if the key is taken.
  absl::Status Put(const std::string& key, const BodySource& body);
  /// The first `bytes` bytes of an open file, in one PUT or in parts.
  absl::Status PutFile(const std::string& key, int fd, uint64_t bytes);

 private:
  static constexpr char kMarkHeader[] = "x-amz-meta-holdfast-write";
  struct Upload;  // a multipart upload under way

  std::string NewMark() const;
  /// OK if the object with `key` has this mark; AlreadyExists if it has another, NotFound if there is none.
  absl::Status FindOwn(const std::string& key, const std::string& mark, bool after_outage = false);
  /// Of a write that was refused, or whose outcome is unclear: OK if it has happened after all, AlreadyExists if
  /// another has, else Unavailable.
  absl::Status Settle(const std::string& key, const std::string& mark, const absl::Status& refusal);
  absl::Status CheckNotTaken(const std::string& key);
  /// Sends it with If-None-Match: *, or after a look where the server does not know that (and `known` becomes false).
  absl::StatusOr<HttpAnswer> SendConditional(const S3Call& call, std::atomic<bool>* known);

  absl::Status PutInParts(const std::string& key, int fd, uint64_t bytes);
  absl::StatusOr<Upload> Begin(const std::string& key);
  absl::StatusOr<std::string> SendPart(const Upload& upload, int64_t part, const BodySource& body);
  absl::Status SendParts(const Upload& upload, int fd, uint64_t bytes, std::string* completion);
  absl::Status Complete(const Upload& upload, const std::string& completion);

  S3Client& client_;
  std::atomic<bool> conditional_put_{true}, conditional_complete_{true};  // until the server says 501
};

/// Bytes of each part but the last: `wanted`, or as many more (whole MiB) as 10,000 parts ask for.
uint64_t PartBytes(uint64_t object_bytes, uint64_t wanted);

}  // namespace holdfast
