#pragma once
// The checkpoints in a storage: which there are, which can be used and why not, which may go, and whose they are
// (fence.h). Making one exist is commit.h's.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// A checkpoint with a valid manifest whose shards are there in their sizes.
struct CatalogEntry {
  Manifest manifest;
  uint64_t bytes = 0;  // of all objects in its directory
};

struct RejectedCheckpoint {
  std::string name;
  std::string reason;       // "no manifest: it was never finished", "shard-1-of-4.h5 is missing"
  bool unfinished = false;  // no manifest; not counted as anything, removed when nobody writes it any more
  bool given_up = false;    // the run has gone back behind it (fence.h)
  uint64_t bytes = 0;       // of all objects in its directory
};

struct Catalog {
  std::vector<CatalogEntry> valid;           // newest first: by step, then generation
  std::vector<RejectedCheckpoint> rejected;  // in the same order
};

/// Manifests that were read before, and the bytes that each has in the storage. They are written once: one that is
/// listed with its size is not read again.
struct KnownManifest {
  uint64_t bytes = 0;
  Manifest manifest;
};
using KnownManifests = std::map<CheckpointName, KnownManifest>;

/// Takes sizes from one listing, and reads every manifest that is not in `known` (null: all), which afterwards has
/// those that are there. Errors are those of reaching the storage: a manifest that cannot be read now is no reason to
/// resume from an older checkpoint.
absl::StatusOr<Catalog> ScanCheckpoints(Storage& storage, KnownManifests* known = nullptr);

struct Retention {
  int64_t keep_last = 2;         // steps; at least 1
  int64_t keep_every_steps = 0;  // and those whose step is a multiple; 0 = none
  int64_t keep_best = 0;         // and as many as have the lowest validation losses; of equal ones the oldest
};

/// Which of `valid` (newest first) to delete, oldest first. Pure. Never the newest; `pinned` (being loaded) neither. Of
/// several with one step only the newest is kept for it.
std::vector<CheckpointName> ChooseDeletions(const std::vector<CatalogEntry>& valid, const Retention& retention,
                                            const std::vector<CheckpointName>& pinned);

/// Manifest first, so that what is half deleted does not exist. Takes CheckpointNames only, also of what was never
/// finished; OK if there is nothing. `still_ours` is asked when the manifest has gone and nothing else has: who asked
/// before it called may have been frozen since, or its request tried again for minutes. An error of it is returned, and
/// the manifest of a whole checkpoint is put back, as it may be one that a new owner keeps.
absl::Status DeleteCheckpoint(Storage& storage, const std::string& name,
                              const std::function<absl::Status()>& still_ours);

}  // namespace holdfast
