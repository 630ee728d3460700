#include "framework/s3/s3_listing.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kMaxPages = 100'000;  // of up to 1,000 entries

template <typename Page>
absl::Status Assign(absl::StatusOr<Page> parsed, Page* page) {
  ASSIGN_OR_RETURN(*page, std::move(parsed));
  return absl::OkStatus();
}

}  // namespace

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
    if (page.next == next) return MalformedListing("repeats a continuation token");
    next = std::move(page.next);
  }
  return MalformedListing("has too many pages");
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
    if (page.next_key == next_key && page.next_id == next_id) return MalformedListing("repeats a continuation token");
    next_key = std::move(page.next_key);
    next_id = std::move(page.next_id);
  }
  return MalformedListing("has too many pages");
}

absl::Status AbortUpload(S3Client& client, const std::string& key, const std::string& id, bool after_outage) {
  const absl::Status status =
      client.Send({.method = "DELETE", .key = key, .query = {{"uploadId", id}}, .after_outage = after_outage}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace holdfast
