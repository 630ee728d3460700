#include "checkpoint/place/checkpoint_place.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/metrics/run_directory.h"
#include "framework/places/places.h"
#include "framework/storage/local_storage.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Takes "/step-0000001000-g7" off the end of `where`, if that is there.
std::optional<CheckpointName> TakeCheckpointName(std::string& where) {
  const size_t slash = where.rfind('/');
  const std::string last = slash == std::string::npos ? where : where.substr(slash + 1);
  const std::optional<CheckpointName> name = CheckpointName::Parse(last);
  if (!name.has_value()) return std::nullopt;
  where = slash == std::string::npos ? "." : slash == 0 ? "/" : where.substr(0, slash);
  return name;
}

absl::StatusOr<std::unique_ptr<Storage>> OpenRemote(const CheckpointConfig& config,
                                                    const std::string& staging_directory, const std::stop_token& stop) {
  return OpenRemoteStorage(config.directory, {.s3 = config.s3, .staging_directory = staging_directory, .stop = stop});
}

absl::StatusOr<std::string> TemporaryDirectory() {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error);
  if (error) return ErrnoToStatus(error.value(), "no directory for temporary files (TMPDIR)");
  return path.string();
}

absl::StatusOr<std::unique_ptr<Storage>> OpenLocal(const std::string& directory, const PlaceOptions& options) {
  return OpenLocalStorage(directory, {.read_only = options.access == PlaceAccess::kRead, .owns = IsOfCheckpoints});
}

absl::StatusOr<CheckpointPlace> OpenRun(const std::string& directory, const PlaceOptions& options) {
  CheckpointPlace place;
  ASSIGN_OR_RETURN(place.run_config, LoadStoredConfig(RunDirectory(directory).config(), FamilyPresets()));
  place.run_directory = directory;
  CheckpointConfig& config = place.run_config->checkpoint;
  if (!options.s3_endpoint.empty()) config.s3.endpoint = options.s3_endpoint;
  if (!options.s3_region.empty()) config.s3.region = options.s3_region;
  const std::string local = config.directory.empty() ? RunDirectory(directory).checkpoints() : config.directory;
  if (IsRemotePlace(local)) {
    ASSIGN_OR_RETURN(place.storage, OpenCheckpointStorage(config, directory, options.stop));
    return place;
  }
  std::error_code error;
  if (options.access != PlaceAccess::kCreate && !fs::is_directory(local, error)) {
    return absl::NotFoundError(absl::StrCat(directory, ": this run has no checkpoints: there is no ", local));
  }
  ASSIGN_OR_RETURN(place.storage, OpenLocal(local, options));
  return place;
}

absl::StatusOr<CheckpointPlace> OpenBucket(std::string where, const PlaceOptions& options) {
  CheckpointPlace place;
  CheckpointConfig config;
  where = WithoutSlashes(where);
  place.checkpoint = TakeCheckpointName(where);
  config.directory = where;
  config.s3.endpoint = options.s3_endpoint;
  if (!options.s3_region.empty()) config.s3.region = options.s3_region;
  ASSIGN_OR_RETURN(const std::string staging, TemporaryDirectory());
  ASSIGN_OR_RETURN(place.storage, OpenRemote(config, staging, options.stop));
  return place;
}

absl::StatusOr<std::unique_ptr<Storage>> OpenRunStorage(const CheckpointConfig& config,
                                                        const std::string& run_directory, bool create,
                                                        const std::stop_token& stop) {
  // Beside the run, where there is room: a shard is as large as a part of the state.
  if (IsRemotePlace(config.directory)) return OpenRemote(config, run_directory + "/staging", stop);
  return OpenLocalStorage(config.directory.empty() ? RunDirectory(run_directory).checkpoints() : config.directory,
                          {.create = create, .owns = IsOfCheckpoints});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> OpenCheckpointStorage(const CheckpointConfig& config,
                                                               const std::string& run_directory,
                                                               const std::stop_token& stop) {
  return OpenRunStorage(config, run_directory, /*create=*/true, stop);
}

absl::StatusOr<std::unique_ptr<Storage>> OpenClaimedStorage(const CheckpointConfig& config,
                                                            const std::string& run_directory,
                                                            const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::unique_ptr<Storage> storage, OpenRunStorage(config, run_directory, /*create=*/false, stop));
  RETURN_IF_ERROR(CheckClaimed(*storage));
  return storage;
}

absl::StatusOr<CheckpointPlace> OpenCheckpointPlace(const std::string& where, const PlaceOptions& options) {
  if (IsRemotePlace(where)) return OpenBucket(where, options);
  std::error_code error;
  std::string directory = WithoutSlashes(where);
  if (fs::exists(RunDirectory(directory).config(), error)) return OpenRun(directory, options);
  CheckpointPlace place;
  place.checkpoint = TakeCheckpointName(directory);
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found && options.access != PlaceAccess::kCreate) {
    return absl::NotFoundError(absl::StrCat(directory, ": there is no such directory"));
  }
  if (fs::exists(status) && !fs::is_directory(status)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": not a directory of checkpoints, nor of a run"));
  }
  ASSIGN_OR_RETURN(place.storage, OpenLocal(directory, options));
  return place;
}

}  // namespace holdfast
