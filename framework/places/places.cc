#include "framework/places/places.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/s3/s3_environment.h"

namespace holdfast {
namespace {

constexpr absl::string_view kS3Scheme = "s3://";

std::string WithoutSlashes(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

/// Keeps the storage for as long as the file is open.
class FileOfStorage final : public OutputFile {
 public:
  FileOfStorage(std::shared_ptr<Storage> storage, std::unique_ptr<OutputFile> file)
      : storage_(std::move(storage)), file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  absl::Status Append(absl::string_view bytes) override { return file_->Append(bytes); }
  absl::Status Overwrite(uint64_t offset, absl::string_view bytes) override { return file_->Overwrite(offset, bytes); }
  absl::Status Sync() override { return file_->Sync(); }
  absl::Status Commit() override { return file_->Commit(); }

 private:
  const std::shared_ptr<Storage> storage_;
  const std::unique_ptr<OutputFile> file_;  // after the storage: it goes first
};

}  // namespace

bool IsRemotePlace(const std::string& where) { return absl::StartsWith(where, kS3Scheme); }

absl::StatusOr<std::unique_ptr<Storage>> OpenRemoteStorage(const std::string& where, const PlaceSettings& settings) {
  const std::string place = IsRemotePlace(where) ? WithoutSlashes(where.substr(kS3Scheme.size())) : "";
  const size_t slash = place.find('/');
  S3Options options;
  options.bucket = place.substr(0, slash);
  options.prefix = slash == std::string::npos ? "" : place.substr(slash + 1);
  if (options.bucket.empty()) return absl::InvalidArgumentError(absl::StrCat(where, ": expected s3://bucket/prefix"));
  options.endpoint = settings.s3.endpoint;
  options.region = settings.s3.region;
  if (settings.s3.addressing != S3Addressing::kAuto) options.by_host = settings.s3.addressing == S3Addressing::kHost;
  options.ca_file = settings.s3.ca_file;
  options.retry_for = std::chrono::seconds(settings.s3.retry_seconds);
  options.staging_directory = settings.staging_directory;
  options.connections = settings.connections;
  options.request_timeout = settings.request_timeout;
  options.stop = settings.stop;
  FillFromEnvironment(&options);
  return OpenS3Storage(options);
}

absl::StatusOr<Places::Object> Places::Find(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash < kS3Scheme.size() || slash + 1 == path.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected s3://bucket/name"));
  }
  const std::string directory = path.substr(0, slash);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Storage>& storage = storages_[directory];
  if (storage == nullptr) {
    ASSIGN_OR_RETURN(storage, OpenRemoteStorage(directory, settings_));
  }
  return Object{storage, path.substr(slash + 1)};
}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Places::Open(const std::string& path) {
  if (!IsRemotePlace(path)) return local_.Open(path);
  ASSIGN_OR_RETURN(Object object, Find(path));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, object.storage->Open(object.name));
  // The storage stays for as long as the file is used.
  const RandomAccessFile* bare = file.release();
  return std::shared_ptr<const RandomAccessFile>(
      bare, [storage = std::move(object.storage)](const RandomAccessFile* opened) { delete opened; });
}

absl::StatusOr<std::unique_ptr<OutputFile>> Places::Create(const std::string& path) {
  if (!IsRemotePlace(path)) return local_.Create(path);
  ASSIGN_OR_RETURN(Object object, Find(path));
  ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, CreateObject(*object.storage, object.name));
  return std::make_unique<FileOfStorage>(std::move(object.storage), std::move(file));
}

std::string Places::ScratchDirectory(const std::string& path) {
  return IsRemotePlace(path) ? settings_.staging_directory : local_.ScratchDirectory(path);
}

}  // namespace holdfast
