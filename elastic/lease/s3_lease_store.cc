#include "elastic/lease/s3_lease_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<S3LeaseStore>> S3LeaseStore::Open(const S3Options& options, bool check) {
  ASSIGN_OR_RETURN(S3Address address, ResolveAddress(options));
  std::unique_ptr<S3LeaseStore> store(new S3LeaseStore(options, std::move(address)));
  if (check) RETURN_IF_ERROR(store->CheckIfMatch());
  return store;
}

std::string S3LeaseStore::Describe() const { return absl::StrCat("s3://", client_.options().bucket, "/", key_); }

// A write to an object that is not there, and would have another tag if it were.
absl::Status S3LeaseStore::CheckIfMatch() {
  const MemoryBody nothing("");
  absl::Status status = client_
                            .Send({.method = "PUT",
                                   .key = key_ + ".check",
                                   .headers = {{"if-match", "\"00000000000000000000000000000000\""}},
                                   .body = &nothing})
                            .status();
  if (absl::IsAlreadyExists(status) || absl::IsNotFound(status) || absl::IsAborted(status)) return absl::OkStatus();
  if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(), ": this object store ", status.ok() ? "ignores" : "does not know",
                   " If-Match on a PUT, by which a lease is renewed: use etcd:// or the run directory"));
}

absl::StatusOr<LeaseStore::Entry> S3LeaseStore::Read() {
  const absl::StatusOr<HttpAnswer> answer = client_.Send({.method = "GET", .key = key_});
  if (absl::IsNotFound(answer.status())) return Entry{};
  RETURN_IF_ERROR(answer.status());
  Entry entry{.text = answer->body, .version = answer->Header("etag")};
  if (entry.version.empty()) return absl::UnavailableError(absl::StrCat(Describe(), ": an answer without an ETag"));
  return entry;
}

absl::StatusOr<std::string> S3LeaseStore::Replace(const std::string& version, absl::string_view text) {
  const MemoryBody body(text);
  S3Call call{.method = "PUT", .key = key_, .body = &body};
  if (version.empty()) {
    call.headers.emplace_back("if-none-match", "*");
  } else {
    call.headers.emplace_back("if-match", version);
  }
  const absl::StatusOr<HttpAnswer> answer = client_.Send(call);
  if (absl::IsAlreadyExists(answer.status()) || absl::IsNotFound(answer.status())) {
    return absl::AbortedError(answer.status().message());
  }
  RETURN_IF_ERROR(answer.status());
  return answer->Header("etag");
}

}  // namespace holdfast
