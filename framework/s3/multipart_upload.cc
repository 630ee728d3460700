// ObjectWriter's large objects: begun, sent in parts and completed; aborted where that fails.
#include <algorithm>
#include <vector>

#include "absl/strings/str_replace.h"
#include "framework/base/parallel.h"
#include "framework/base/status.h"
#include "framework/s3/object_writer.h"
#include "framework/s3/s3_answer.h"
#include "framework/s3/s3_listing.h"
#include "framework/s3/xml_scanner.h"

namespace holdfast {
namespace {

constexpr int64_t kMaxParts = 10'000;
constexpr int kMaxUploads = 3;  // of one file, when somebody else's request collides with ours

absl::Status TakeUploadId(const HttpAnswer& answer, std::string* id) {
  const absl::Status scanned = ScanXml(answer.body, [&](absl::string_view path, absl::string_view text) {
    if (path == "InitiateMultipartUploadResult/UploadId") *id = std::string(text);
    return absl::OkStatus();
  });
  if (scanned.ok() && !id->empty()) return absl::OkStatus();
  return absl::UnavailableError("the server has begun an upload without an id");
}

// Status 200 says only that the server has begun to complete it; the body says how that ended. No body at all is an
// answer that was lost.
absl::Status CompletionStatus(const HttpAnswer& answer) {
  bool completed = false;
  const absl::Status scanned = ScanXml(answer.body, [&](absl::string_view path, absl::string_view /*text*/) {
    completed = completed || path == "CompleteMultipartUploadResult";
    return absl::OkStatus();
  });
  if (scanned.ok() && completed) return absl::OkStatus();
  const S3Error error = ParseS3Error(answer.body);
  if (error.code.empty()) return absl::UnavailableError("the upload's completion was answered with something else");
  return StatusOfError(answer.status, error);
}

std::string CompletionBody(const std::vector<std::string>& etags) {
  std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < etags.size(); ++i) {
    absl::StrAppend(&xml, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
                    absl::StrReplaceAll(etags[i], {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}), "</ETag></Part>");
  }
  return xml + "</CompleteMultipartUpload>";
}

}  // namespace

struct ObjectWriter::Upload {
  std::string key, id, mark;
  bool begun_twice = false;  // perhaps: an answer was lost, and with it the id of another upload
};

uint64_t PartBytes(uint64_t object_bytes, uint64_t wanted) {
  constexpr uint64_t kMiB = 1u << 20;
  const uint64_t least = (object_bytes + kMaxParts - 1) / kMaxParts;
  return least <= wanted ? wanted : (least + kMiB - 1) / kMiB * kMiB;
}

absl::Status ObjectWriter::PutFile(const std::string& key, int fd, uint64_t bytes) {
  if (bytes <= client_.options().part_bytes) return Put(key, FileRangeBody(fd, 0, bytes));
  RETURN_IF_ERROR(CheckNotTaken(key));  // rather than after all the bytes have gone up
  absl::Status status;
  for (int i = 0; i < kMaxUploads; ++i) {
    status = PutInParts(key, fd, bytes);
    if (!absl::IsAborted(status)) return status;
  }
  return absl::UnavailableError(status.message());
}

absl::Status ObjectWriter::PutInParts(const std::string& key, int fd, uint64_t bytes) {
  ASSIGN_OR_RETURN(const Upload upload, Begin(key));
  std::string completion;
  absl::Status status = SendParts(upload, fd, bytes, &completion);
  if (status.ok()) status = Complete(upload, completion);
  if (!status.ok()) {
    const absl::Status aborted = AbortUpload(client_, key, upload.id, /*after_outage=*/absl::IsUnavailable(status));
    if (aborted.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; its parts stay until they are swept: ", aborted.message()));
  }
  if (upload.begun_twice) {
    // The key is taken now, by us, so no other upload to it can have a future. What fails here is swept in a day.
    const absl::StatusOr<std::vector<ListedUpload>> others = ListUploads(client_, key);
    for (const ListedUpload& other : others.ok() ? *others : std::vector<ListedUpload>{}) {
      if (other.key == key) AbortUpload(client_, key, other.id).IgnoreError();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ObjectWriter::Upload> ObjectWriter::Begin(const std::string& key) {
  Upload upload{.key = key, .id = "", .mark = NewMark()};
  const MemoryBody nothing("");
  const S3Call call{.method = "POST",
                    .key = key,
                    .query = {{"uploads", ""}},
                    .headers = {{kMarkHeader, upload.mark}},
                    .body = &nothing,
                    .check = [&](const HttpAnswer& answer) { return TakeUploadId(answer, &upload.id); }};
  int attempts = 0;
  RETURN_IF_ERROR(client_.Send(call, &attempts).status());
  upload.begun_twice = attempts > 1;
  return upload;
}

absl::Status ObjectWriter::SendParts(const Upload& upload, int fd, uint64_t bytes, std::string* completion) {
  const uint64_t part_bytes = PartBytes(bytes, client_.options().part_bytes);
  const int64_t parts = static_cast<int64_t>((bytes + part_bytes - 1) / part_bytes);
  std::vector<std::string> etags(static_cast<size_t>(parts));
  RETURN_IF_ERROR(RunParallel(parts, client_.options().connections, [&](int64_t part) -> absl::Status {
    const uint64_t begin = static_cast<uint64_t>(part) * part_bytes;
    const FileRangeBody body(fd, begin, std::min(part_bytes, bytes - begin));
    ASSIGN_OR_RETURN(etags[static_cast<size_t>(part)], SendPart(upload, part, body));
    return absl::OkStatus();
  }));
  *completion = CompletionBody(etags);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ObjectWriter::SendPart(const Upload& upload, int64_t part, const BodySource& body) {
  const S3Call call{.method = "PUT",
                    .key = upload.key,
                    .query = {{"partNumber", absl::StrCat(part + 1)}, {"uploadId", upload.id}},
                    .body = &body};
  ASSIGN_OR_RETURN(const HttpAnswer answer, client_.Send(call));
  std::string etag = answer.Header("etag");
  if (etag.empty()) {
    return absl::UnavailableError(absl::StrCat(upload.key, ": the server gave no ETag to part ", part + 1));
  }
  return etag;
}

// Asking twice is safe: once completed, the upload is unknown or the key taken, and the object's mark tells by whom.
absl::Status ObjectWriter::Complete(const Upload& upload, const std::string& completion) {
  const MemoryBody body(completion);
  const S3Call call{.method = "POST",
                    .key = upload.key,
                    .query = {{"uploadId", upload.id}},
                    .body = &body,
                    .check = &CompletionStatus};
  const absl::Status status = SendConditional(call, &conditional_complete_).status();
  if (status.ok()) return absl::OkStatus();
  const bool unclear = absl::IsAlreadyExists(status) || absl::IsNotFound(status) || absl::IsAborted(status) ||
                       absl::IsUnavailable(status);
  if (!unclear) return Annotate(status, absl::StrCat("completing ", upload.key));
  const absl::Status settled = Settle(upload.key, upload.mark, status);
  const bool conflict = absl::IsAborted(status) && absl::IsUnavailable(settled);
  return conflict ? status : settled;  // S3 wants a new upload after a conflict
}

}  // namespace holdfast
