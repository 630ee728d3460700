#include "framework/s3/object_writer.h"

#include "absl/strings/str_format.h"
#include "framework/base/status.h"

namespace holdfast {
std::string ObjectWriter::NewMark() const {
  const uint64_t high = client_.shell().random(), low = client_.shell().random();
  return absl::StrFormat("%016x%016x", high, low);
}

absl::Status ObjectWriter::FindOwn(const std::string& key, const std::string& mark, bool after_outage) {
  ASSIGN_OR_RETURN(const HttpAnswer answer, client_.Send({.method = "HEAD", .key = key, .after_outage = after_outage}));
  if (answer.Header(kMarkHeader) == mark) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("s3://", client_.options().bucket, "/", key, ": exists already"));
}

absl::Status ObjectWriter::Settle(const std::string& key, const std::string& mark, const absl::Status& refusal) {
  absl::Status found = FindOwn(key, mark, /*after_outage=*/absl::IsUnavailable(refusal));
  if (found.ok() || absl::IsAlreadyExists(found)) return found;
  return absl::UnavailableError(absl::StrCat(refusal.message(), "; and whether it is our own: ", found.message()));
}

absl::Status ObjectWriter::CheckNotTaken(const std::string& key) {
  const absl::Status found = FindOwn(key, "no mark");
  return absl::IsNotFound(found) ? absl::OkStatus() : found;
}

absl::StatusOr<HttpAnswer> ObjectWriter::SendConditional(const S3Call& call, std::atomic<bool>* known) {
  if (*known) {
    S3Call conditional = call;
    conditional.headers.emplace_back("if-none-match", "*");
    absl::StatusOr<HttpAnswer> answer = client_.Send(conditional);
    if (!absl::IsUnimplemented(answer.status())) return answer;
    *known = false;
  }
  // Weaker: two writers may both look before either writes, and the later one replaces the earlier one's object.
  RETURN_IF_ERROR(CheckNotTaken(call.key));
  return client_.Send(call);
}

absl::Status ObjectWriter::Put(const std::string& key, const BodySource& body) {
  const std::string mark = NewMark();
  const S3Call call{
      .method = "PUT", .key = key, .headers = {{kMarkHeader, mark}}, .body = &body, .retry_conflict = true};
  const absl::Status status = SendConditional(call, &conditional_put_).status();
  return absl::IsAlreadyExists(status) ? Settle(key, mark, status) : status;
}

}  // namespace holdfast
