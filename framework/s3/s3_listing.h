#pragma once
// Listings, page by page: objects, and multipart uploads that were begun and not finished.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/s3/s3_client.h"

namespace holdfast {

struct ListedKey {
  std::string key;
  uint64_t size = 0;
};
struct ListPage {
  std::vector<ListedKey> keys;
  std::string next;  // continuation token; empty = the last page
};

struct ListedUpload {
  std::string key, id;
  std::chrono::system_clock::time_point begun;
};
struct UploadPage {
  std::vector<ListedUpload> uploads;
  std::string next_key, next_id;  // markers; both empty = the last page
};

/// Unavailable, saying what is wrong, if the text is not what S3 promises to answer.
absl::StatusOr<ListPage> ParseListPage(absl::string_view xml);
absl::StatusOr<UploadPage> ParseUploadPage(absl::string_view xml);
/// "2010-11-10T20:48:33.000Z"
std::optional<std::chrono::system_clock::time_point> ParseIsoTime(absl::string_view text);

/// All keys that begin with `prefix`, in the server's order; at most `max_keys` of them if that is not 0.
absl::StatusOr<std::vector<ListedKey>> ListKeys(S3Client& client, const std::string& prefix, int max_keys = 0);
absl::StatusOr<std::vector<ListedUpload>> ListUploads(S3Client& client, const std::string& prefix);

absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& id);

}  // namespace holdfast
