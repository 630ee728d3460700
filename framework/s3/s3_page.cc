#include "framework/s3/s3_page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/status.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

constexpr int64_t kLatest = 7'258'118'400;  // 2200-01-01

// Scans `xml`, whose root must be `root`; `on_element` gets paths without it.
template <typename OnElement>
absl::Status ScanListing(absl::string_view xml, absl::string_view root, OnElement on_element) {
  const absl::Status scanned = ScanXml(xml, [&](absl::string_view path, absl::string_view text) -> absl::Status {
    if (path.substr(0, root.size()) != root) return MalformedListing(absl::StrCat("is a <", path.substr(0, 64), ">"));
    return on_element(path.substr(std::min(path.size(), root.size() + 1)), text);
  });
  return scanned.ok() || absl::IsUnavailable(scanned) ? scanned
                                                      : MalformedListing(absl::StrCat("is ", scanned.message()));
}

}  // namespace

absl::Status MalformedListing(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("the server's listing ", what));
}

std::optional<std::chrono::system_clock::time_point> ParseIsoTime(absl::string_view text) {
  absl::Time time;
  std::string wrong;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &wrong)) return std::nullopt;
  // Some services write 9999 for never; a time is subtracted from, and must not overflow then.
  return absl::ToChronoTime(std::clamp(time, absl::UnixEpoch(), absl::FromUnixSeconds(kLatest)));
}

absl::StatusOr<ListPage> ParseListPage(absl::string_view xml) {
  ListPage page;
  std::optional<std::string> key;
  std::optional<uint64_t> size;
  bool truncated = false;
  RETURN_IF_ERROR(ScanListing(xml, "ListBucketResult", [&](absl::string_view path, absl::string_view text) {
    uint64_t number = 0;
    if (path == "Contents/Key") key = std::string(text);
    if (path == "Contents/Size") {
      if (!absl::SimpleAtoi(text, &number)) return MalformedListing("has a size that is no number");
      size = number;
    }
    if (path == "Contents") {
      if (!key || !size) return MalformedListing("has an object without key or size");
      page.keys.push_back({*std::exchange(key, {}), *std::exchange(size, {})});
    }
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextContinuationToken") page.next = std::string(text);
    return absl::OkStatus();
  }));
  if (truncated && page.next.empty()) return MalformedListing("is truncated without a continuation token");
  if (!truncated) page.next.clear();
  return page;
}

absl::StatusOr<UploadPage> ParseUploadPage(absl::string_view xml) {
  UploadPage page;
  ListedUpload upload;
  bool truncated = false, timed = false;
  RETURN_IF_ERROR(ScanListing(xml, "ListMultipartUploadsResult", [&](absl::string_view path, absl::string_view text) {
    if (path == "Upload/Key") upload.key = std::string(text);
    if (path == "Upload/UploadId") upload.id = std::string(text);
    if (path == "Upload/Initiated") {
      const auto time = ParseIsoTime(text);
      timed = time.has_value();
      upload.begun = time.value_or(upload.begun);
    }
    if (path == "Upload") {
      if (upload.key.empty() || upload.id.empty() || !timed)
        return MalformedListing("has an upload without key, id or time");
      page.uploads.push_back(std::exchange(upload, {}));
      timed = false;
    }
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextKeyMarker") page.next_key = std::string(text);
    if (path == "NextUploadIdMarker") page.next_id = std::string(text);
    return absl::OkStatus();
  }));
  if (truncated && page.next_key.empty()) return MalformedListing("is truncated without a continuation token");
  if (!truncated) page.next_key = page.next_id = "";
  return page;
}

}  // namespace holdfast
