#include "framework/s3/s3_listing.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/strings/numbers.h"
#include "framework/base/status.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

constexpr int kMaxPages = 100'000;  // of up to 1,000 entries

absl::Status Malformed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("the server's listing ", what));
}

// Scans `xml`, whose root must be `root`; `on_element` gets paths without it.
template <typename OnElement>
absl::Status ScanListing(absl::string_view xml, absl::string_view root, OnElement on_element) {
  const absl::Status scanned = ScanXml(xml, [&](absl::string_view path, absl::string_view text) -> absl::Status {
    if (path.substr(0, root.size()) != root) return Malformed(absl::StrCat("is a <", path.substr(0, 64), ">"));
    return on_element(path.substr(std::min(path.size(), root.size() + 1)), text);
  });
  return scanned.ok() || absl::IsUnavailable(scanned) ? scanned : Malformed(absl::StrCat("is ", scanned.message()));
}

template <typename Page>
absl::Status Assign(absl::StatusOr<Page> parsed, Page* page) {
  ASSIGN_OR_RETURN(*page, std::move(parsed));
  return absl::OkStatus();
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> ParseIsoTime(absl::string_view text) {
  std::tm parts{};
  const std::string copy(text.substr(0, 32));
  const int fields = std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                                 &parts.tm_hour, &parts.tm_min, &parts.tm_sec);
  if (fields != 6) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(timegm(&parts));
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
      if (!absl::SimpleAtoi(text, &number)) return Malformed("has a size that is no number");
      size = number;
    }
    if (path == "Contents") {
      if (!key || !size) return Malformed("has an object without key or size");
      page.keys.push_back({*std::exchange(key, {}), *std::exchange(size, {})});
    }
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextContinuationToken") page.next = std::string(text);
    return absl::OkStatus();
  }));
  if (truncated && page.next.empty()) return Malformed("is truncated without a continuation token");
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
      if (upload.key.empty() || upload.id.empty() || !timed) return Malformed("has an upload without key, id or time");
      page.uploads.push_back(std::exchange(upload, {}));
      timed = false;
    }
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextKeyMarker") page.next_key = std::string(text);
    if (path == "NextUploadIdMarker") page.next_id = std::string(text);
    return absl::OkStatus();
  }));
  if (truncated && page.next_key.empty()) return Malformed("is truncated without a continuation token");
  if (!truncated) page.next_key = page.next_id = "";
  return page;
}

absl::StatusOr<std::vector<ListedKey>> ListKeys(S3Client& client, const std::string& prefix, int max_keys) {
  std::vector<ListedKey> keys;
  std::string next;
  for (int i = 0; i < kMaxPages; ++i) {
    S3Call call{.method = "GET", .query = {{"list-type", "2"}}};
    if (!prefix.empty()) call.query.emplace_back("prefix", prefix);
    if (!next.empty()) call.query.emplace_back("continuation-token", next);
    if (max_keys != 0) call.query.emplace_back("max-keys", absl::StrCat(max_keys));
    ListPage page;
    call.check = [&](const HttpAnswer& answer) { return Assign(ParseListPage(answer.body), &page); };
    RETURN_IF_ERROR(client.Send(call).status());
    keys.insert(keys.end(), std::make_move_iterator(page.keys.begin()), std::make_move_iterator(page.keys.end()));
    const bool last = page.next.empty() || (max_keys != 0 && keys.size() >= static_cast<size_t>(max_keys));
    if (last) return keys;
    if (page.next == next) return Malformed("repeats a continuation token");
    next = std::move(page.next);
  }
  return Malformed("has too many pages");
}

absl::StatusOr<std::vector<ListedUpload>> ListUploads(S3Client& client, const std::string& prefix) {
  std::vector<ListedUpload> uploads;
  std::string next_key, next_id;
  for (int i = 0; i < kMaxPages; ++i) {
    S3Call call{.method = "GET", .query = {{"uploads", ""}}};
    if (!prefix.empty()) call.query.emplace_back("prefix", prefix);
    if (!next_key.empty()) call.query.emplace_back("key-marker", next_key);
    if (!next_id.empty()) call.query.emplace_back("upload-id-marker", next_id);
    UploadPage page;
    call.check = [&](const HttpAnswer& answer) { return Assign(ParseUploadPage(answer.body), &page); };
    RETURN_IF_ERROR(client.Send(call).status());
    for (ListedUpload& upload : page.uploads) {  // not every server heeds the prefix
      if (absl::string_view(upload.key).substr(0, prefix.size()) == prefix) uploads.push_back(std::move(upload));
    }
    if (page.next_key.empty()) return uploads;
    if (page.next_key == next_key && page.next_id == next_id) return Malformed("repeats a continuation token");
    next_key = std::move(page.next_key);
    next_id = std::move(page.next_id);
  }
  return Malformed("has too many pages");
}

absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& id) {
  const absl::Status status = client.Send({.method = "DELETE", .key = key, .query = {{"uploadId", id}}}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace holdfast
