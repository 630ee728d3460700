#include "framework/s3/s3_storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "framework/base/parallel.h"
#include "framework/base/status.h"
#include "framework/s3/object_writer.h"
#include "framework/s3/open_s3_storage.h"
#include "framework/s3/s3_client.h"
#include "framework/s3/s3_listing.h"
#include "framework/s3/staging_area.h"

namespace holdfast {
namespace {

constexpr int kReadsAtOnce = 16;           // of small ranges, to hide the latency of one
constexpr uint64_t kReadBytes = 8u << 20;  // of one ranged GET
constexpr uint64_t kMaxPutBytes = 5ull << 30;
constexpr uint64_t kMinAwsPartBytes = 5ull << 20;
constexpr uint64_t kNoObjectIsLarger = 1ull << 60;
constexpr size_t kMaxPrefixBytes = 400;  // a key has at most 1,024
constexpr std::chrono::hours kUploadAbandonedAfter{24};

class S3StagedFile final : public StagedFile {
 public:
  S3StagedFile(ObjectWriter& writer, std::string key, std::string path)
      : writer_(writer), key_(std::move(key)), path_(std::move(path)) {}
  ~S3StagedFile() override { unlink(path_.c_str()); }

  const std::string& path() const override { return path_; }

  absl::Status Reserve(uint64_t bytes) override { return CheckRoom(path_, bytes); }

  absl::Status Commit() override {
    if (std::exchange(committed_, true)) return absl::FailedPreconditionError(absl::StrCat(key_, ": committed twice"));
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return ErrnoToStatus(errno, path_);
    struct stat info;
    absl::Status status = fstat(fd, &info) == 0 ? absl::OkStatus() : ErrnoToStatus(errno, path_);
    if (status.ok()) status = writer_.PutFile(key_, fd, static_cast<uint64_t>(info.st_size));
    close(fd);
    unlink(path_.c_str());  // its space may be wanted before this object goes
    return status;
  }

 private:
  ObjectWriter& writer_;
  const std::string key_, path_;
  bool committed_ = false;
};

/// What an object was when it was opened.
struct S3Version {
  uint64_t size = 0;
  std::string etag;  // changes with the contents
};

class S3Storage final : public Storage {
 public:
  S3Storage(const S3Options& options, S3Address address, S3Shell shell)
      : prefix_(options.prefix.empty() ? "" : options.prefix + "/"),
        client_(options, std::move(address), std::move(shell)),
        writer_(client_) {}

  /// Whether the bucket is there and ours to list.
  absl::Status Check() { return ListKeys(client_, prefix_, 1).status(); }

  std::string Describe() const override {
    return absl::StrCat("s3://", client_.options().bucket, prefix_.empty() ? "" : "/", client_.options().prefix);
  }

  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override {
    ASSIGN_OR_RETURN(const std::vector<ListedKey> keys, ListKeys(client_, absl::StrCat(prefix_, prefix)));
    std::vector<StoredObject> objects;
    for (const ListedKey& listed : keys) {
      if (!absl::StartsWith(listed.key, prefix_)) continue;
      std::string name = listed.key.substr(prefix_.size());
      const bool ours = CheckObjectName(name).ok();  // consoles make objects named "folder/"
      if (ours) objects.push_back({std::move(name), listed.size});
    }
    std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return objects;
  }

  absl::StatusOr<uint64_t> Size(const std::string& name) override {
    ASSIGN_OR_RETURN(const S3Version version, Head(name));
    return version.size;
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& name) override;

  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override {
    return ReadVersion(name, "", offset, out, {});
  }

  /// Of the version with this tag, if it is not empty; AlreadyExists if another has taken its place.
  absl::Status ReadVersion(const std::string& name, const std::string& etag, uint64_t offset, absl::Span<std::byte> out,
                           const std::stop_token& stop) {
    RETURN_IF_ERROR(CheckObjectName(name));
    if (out.empty() || offset > kNoObjectIsLarger) return ReadNothing(name, offset, out.size());
    const int64_t pieces = static_cast<int64_t>((out.size() + kReadBytes - 1) / kReadBytes);
    return RunParallel(pieces, client_.options().connections, [&](int64_t i) {
      const uint64_t begin = static_cast<uint64_t>(i) * kReadBytes;
      return ReadRange(name, etag, offset + begin, out.subspan(begin, kReadBytes), stop);
    });
  }

  absl::Status Create(const std::string& name, absl::string_view contents) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    if (contents.size() > kMaxPutBytes) return absl::InvalidArgumentError(Path(name) + ": over 5 GiB in one piece");
    return writer_.Put(prefix_ + name, MemoryBody(contents));
  }

  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    RETURN_IF_ERROR(MakeStagingArea());
    const std::string label = name.substr(name.rfind('/') + 1);
    ASSIGN_OR_RETURN(std::string path, staging_->NewFile(label, bytes));
    return std::make_unique<S3StagedFile>(writer_, prefix_ + name, std::move(path));
  }

  absl::Status Delete(const std::string& name) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    const absl::Status status = client_.Send({.method = "DELETE", .key = prefix_ + name}).status();
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::Status Sweep() override {
    if (!client_.options().staging_directory.empty()) {
      RETURN_IF_ERROR(StagingArea::Sweep(client_.options().staging_directory));
    }
    if (prefix_.empty()) return absl::OkStatus();  // of a whole bucket uploads may be anybody's
    ASSIGN_OR_RETURN(const std::vector<ListedUpload> uploads, ListUploads(client_, prefix_));
    for (const ListedUpload& upload : uploads) {
      const bool abandoned = client_.now() - upload.begun > kUploadAbandonedAfter;
      if (abandoned) RETURN_IF_ERROR(AbortUpload(client_, upload.key, upload.id));
    }
    return absl::OkStatus();
  }

 private:
  std::string Path(const std::string& name) const { return absl::StrCat(Describe(), "/", name); }

  // A range without bytes, or beyond any object's end: HTTP cannot ask for either.
  absl::Status ReadNothing(const std::string& name, uint64_t offset, size_t bytes) {
    ASSIGN_OR_RETURN(const uint64_t size, Size(name));
    if (bytes == 0 && offset <= size) return absl::OkStatus();
    return TooShort(name, size, offset, bytes);
  }

  absl::Status TooShort(const std::string& name, uint64_t size, uint64_t offset, size_t bytes) const {
    return absl::DataLossError(absl::StrCat(Path(name), ": ends at byte ", size, ", but ", bytes,
                                            " bytes were to be read from byte ", offset));
  }

  absl::StatusOr<S3Version> Head(const std::string& name) {
    RETURN_IF_ERROR(CheckObjectName(name));
    S3Version version;
    const auto check = [&](const HttpAnswer& answer) {
      version.etag = answer.Header("etag");
      const bool sized = absl::SimpleAtoi(answer.Header("content-length"), &version.size);
      return sized ? absl::OkStatus() : absl::UnavailableError("the server did not say its size");
    };
    RETURN_IF_ERROR(client_.Send({.method = "HEAD", .key = prefix_ + name, .check = check}).status());
    return version;
  }

  absl::Status ReadRange(const std::string& name, const std::string& etag, uint64_t offset, absl::Span<std::byte> out,
                         const std::stop_token& stop) {
    S3Call call{.method = "GET",
                .key = prefix_ + name,
                .headers = {{"range", absl::StrCat("bytes=", offset, "-", offset + out.size() - 1)}},
                .into = out,
                .stop = stop,
                .check = [&](const HttpAnswer& answer) { return CheckRange(answer, etag, offset, out.size()); }};
    if (!etag.empty()) call.headers.emplace_back("if-match", etag);
    const absl::StatusOr<HttpAnswer> answer = client_.Send(call);
    if (absl::IsOutOfRange(answer.status())) {
      return absl::DataLossError(absl::StrCat(Path(name), ": ends before byte ", offset));
    }
    if (answer.ok() && answer->bytes_into < out.size()) {
      return TooShort(name, offset + answer->bytes_into, offset, out.size());
    }
    return answer.status();
  }

  /// Unavailable unless these are the bytes of the object from `offset` on, `bytes` of them or all that it has.
  static absl::Status CheckRange(const HttpAnswer& answer, const std::string& etag, uint64_t offset, size_t bytes) {
    absl::Status other = absl::UnavailableError("the server answered with other bytes than those asked for");
    const std::string tag = answer.Header("etag");
    if (tag.empty() || (!etag.empty() && tag != etag)) return other;  // a page of something in between
    const std::string range = answer.Header("content-range");
    const uint64_t end = offset + answer.bytes_into;
    const bool whole = answer.bytes_into == bytes;
    if (answer.status == 200 && offset == 0) return absl::OkStatus();  // the whole object, and no more than asked for
    if (answer.status != 206 || !absl::StartsWith(range, absl::StrCat("bytes ", offset, "-", end - 1, "/")))
      return other;
    return whole || absl::EndsWith(range, absl::StrCat("/", end)) ? absl::OkStatus() : other;
  }

  absl::Status MakeStagingArea() {
    const std::lock_guard lock(staging_mutex_);
    if (staging_ != nullptr) return absl::OkStatus();
    const std::string& directory = client_.options().staging_directory;
    if (directory.empty()) return absl::InvalidArgumentError("S3 storage has no staging directory to make files in");
    // Where only workers run, nobody else clears away what killed ones have left.
    StagingArea::Sweep(directory).IgnoreError();
    ASSIGN_OR_RETURN(staging_, StagingArea::Create(directory));
    return absl::OkStatus();
  }

  const std::string prefix_;  // "" or "a/b/"
  S3Client client_;
  ObjectWriter writer_;
  std::mutex staging_mutex_;
  std::unique_ptr<StagingArea> staging_;
};

class OpenS3Object final : public RandomAccessFile {
 public:
  OpenS3Object(S3Storage& storage, std::string name, S3Version version)
      : storage_(storage),
        name_(std::move(name)),
        path_(absl::StrCat(storage.Describe(), "/", name_)),
        version_(std::move(version)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return version_.size; }
  int reads_at_once() const override { return kReadsAtOnce; }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    return ReadUnlessStopped(offset, out, {});
  }
  absl::Status ReadUnlessStopped(uint64_t offset, absl::Span<std::byte> out,
                                 const std::stop_token& stop) const override {
    const absl::Status status = storage_.ReadVersion(name_, version_.etag, offset, out, stop);
    const std::string place = absl::StrCat(path_, " at byte ", offset);
    if (absl::IsAlreadyExists(status)) {
      return absl::DataLossError(absl::StrCat(place, ": the object was replaced since it was opened"));
    }
    // It could be read from when it was opened, so this is nothing that a caller has to change.
    if (absl::IsFailedPrecondition(status)) return absl::UnavailableError(absl::StrCat(place, ": ", status.message()));
    return Annotate(status, place);
  }

 private:
  S3Storage& storage_;
  const std::string name_, path_;
  const S3Version version_;
};

absl::StatusOr<std::unique_ptr<RandomAccessFile>> S3Storage::Open(const std::string& name) {
  ASSIGN_OR_RETURN(S3Version version, Head(name));
  return std::make_unique<OpenS3Object>(*this, name, std::move(version));
}

// "/a/b/" -> "a/b"
absl::StatusOr<std::string> CheckPrefix(absl::string_view prefix) {
  while (absl::ConsumePrefix(&prefix, "/")) {
  }
  while (absl::ConsumeSuffix(&prefix, "/")) {
  }
  if (prefix.empty()) return std::string();
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the S3 prefix ", what));
  };
  if (prefix.size() > kMaxPrefixBytes) return bad(absl::StrCat("is over ", kMaxPrefixBytes, " bytes"));
  for (const absl::string_view component : absl::StrSplit(prefix, '/')) {
    if (component.empty() || component == "." || component == "..")
      return bad("has an empty, \".\" or \"..\" component");
    for (const char c : component) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return bad("has control characters");
    }
  }
  return std::string(prefix);
}

absl::Status CheckLimits(const S3Options& options) {
  const auto bad = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("S3 options: ", what));
  };
  const uint64_t least = options.endpoint.empty() ? kMinAwsPartBytes : 1;
  if (options.part_bytes < least || options.part_bytes > kMaxPutBytes) {
    return bad(absl::StrCat("parts have ", least, " to ", kMaxPutBytes, " bytes, not ", options.part_bytes));
  }
  if (options.connections < 1 || options.connections > 256) return bad("there are 1 to 256 connections");
  if (options.retry_for < std::chrono::milliseconds(0)) return bad("it is tried for 0 ms or longer");
  if (options.credentials == nullptr) return bad("there are no credentials");
  if (options.request_timeout < std::chrono::milliseconds(1)) return bad("a request has at least 1 ms");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> OpenS3Storage(const S3Options& options, const S3Shell& shell) {
  S3Options checked = options;
  ASSIGN_OR_RETURN(checked.prefix, CheckPrefix(options.prefix));
  RETURN_IF_ERROR(CheckLimits(options));
  ASSIGN_OR_RETURN(S3Address address, ResolveAddress(options));
  auto storage = std::make_unique<S3Storage>(checked, std::move(address), shell);
  RETURN_IF_ERROR(storage->Check());
  return storage;
}

absl::StatusOr<std::unique_ptr<Storage>> OpenS3Storage(const S3Options& options) {
  return OpenS3Storage(options, RealS3Shell());
}

}  // namespace holdfast
