#pragma once
// Where checkpoints are: by the config of a run, or by what a user writes on the command line.

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/config/config.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// The storage of config.directory: RUN_DIR/checkpoints if it is empty, s3://bucket/prefix with the credentials of the
/// environment, else a directory, which is created. Once `stop` is requested, what waits for a server is Cancelled
/// soon.
absl::StatusOr<std::unique_ptr<Storage>> OpenCheckpointStorage(const CheckpointConfig& config,
                                                               const std::string& run_directory,
                                                               const std::stop_token& stop = {});

/// The same for a worker: nothing is created, and NotFound, saying what is missing, if it is not the place that the
/// run's coordinator has claimed (a host that lacks the mount).
absl::StatusOr<std::unique_ptr<Storage>> OpenClaimedStorage(const CheckpointConfig& config,
                                                            const std::string& run_directory,
                                                            const std::stop_token& stop = {});

enum class PlaceAccess {
  kRead,    // also where nothing may be written
  kWrite,   // must be there and writable
  kCreate,  // a directory that is not there is made
};

/// What the command line says besides the place itself.
struct PlaceOptions {
  std::string s3_endpoint{},
      s3_region{};  // empty = as the config of the run says, else the environment, AWS, us-east-1
  PlaceAccess access = PlaceAccess::kRead;
  std::stop_token stop{};  // as of OpenCheckpointStorage
};

struct CheckpointPlace {
  std::unique_ptr<Storage> storage;
  std::optional<CheckpointName> checkpoint;  // the place is this one and no other
  std::string run_directory;                 // where it was one; then run_config is set
  std::optional<Config> run_config;
};

/// `where`: a run directory (one with a config.yaml, whose checkpoint section decides), a directory of checkpoints, or
/// s3://bucket/prefix; to the latter two the name of a checkpoint may be appended ("/data/ck/step-0000001000-g7").
/// NotFound, and nothing is created, if there is no such directory.
absl::StatusOr<CheckpointPlace> OpenCheckpointPlace(const std::string& where, const PlaceOptions& options);

}  // namespace holdfast
