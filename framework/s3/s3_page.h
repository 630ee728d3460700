#pragma once
// A page of a listing, as the server writes it: of objects, or of multipart uploads that were begun and not finished.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

/// Unavailable: an answer that is not what S3 promises may be another one the next time.
absl::Status MalformedListing(absl::string_view what);
absl::StatusOr<ListPage> ParseListPage(absl::string_view xml);
absl::StatusOr<UploadPage> ParseUploadPage(absl::string_view xml);
/// "2010-11-10T20:48:33.000Z"; between 1970 and 2200.
std::optional<std::chrono::system_clock::time_point> ParseIsoTime(absl::string_view text);

}  // namespace holdfast
