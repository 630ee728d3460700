#pragma once
// Where a place that a user has written is: a path of a file system, or s3://bucket/name. The one list of the kinds of
// storage that there are.
//
//   Places places({.s3 = config.data.s3});
//   ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file, places.Open("s3://corpora/train.bin"));

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/storage/file_access.h"
#include "framework/storage/storage.h"

namespace holdfast {

struct PlaceSettings {
  S3Config s3{};
  std::string staging_directory{};                    // where objects are made before they go up; empty = none is made
  std::chrono::milliseconds request_timeout{60'000};  // of one request, and one of silence
  int connections = 8;                                // of each storage, at once
  std::stop_token stop{};                             // once requested, what waits for a server is Cancelled soon
};

/// Whether this is a place of a storage that needs a network, not a path.
bool IsRemotePlace(const std::string& where);

/// The storage at s3://bucket/prefix, with the credentials of the environment. InvalidArgument if `where` is no remote
/// place.
absl::StatusOr<std::unique_ptr<Storage>> OpenRemoteStorage(const std::string& where, const PlaceSettings& settings);

/// Files of file systems and of remote storages. One storage is opened for all files of one directory.
class Places final : public FileAccess {
 public:
  explicit Places(PlaceSettings settings) : settings_(std::move(settings)) {}
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  std::string ScratchDirectory(const std::string& path) override;

 private:
  struct Object {
    std::shared_ptr<Storage> storage;
    std::string name;
  };
  absl::StatusOr<Object> Find(const std::string& path);

  const PlaceSettings settings_;
  LocalFileAccess local_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Storage>> storages_;  // by directory; under mutex_
};

}  // namespace holdfast
