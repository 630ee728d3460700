#include "checkpoint/sharded/commit.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/sharded/commit_crash_points.h"
#include "checkpoint/sharded/model_file.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"
#include "framework/storage/crash_point.h"

namespace holdfast {
namespace {

absl::Status CheckShards(const Manifest& manifest, const std::vector<StoredObject>& objects) {
  const std::vector<FileProblem> problems = FindSizeProblemsOfShards(manifest, objects);
  if (problems.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(manifest.name.ToString(), ": ", problems.front().ToString()));
}

absl::Status SetStateDigest(const StoredChunks& chunks, Manifest* manifest) {
  const uint64_t digest = StateDigestOf(chunks, OrderByRow(chunks));
  if (manifest->state_digest != 0 && manifest->state_digest != digest) {
    return absl::DataLossError(absl::StrFormat("%s: the shards hold a state with digest %016x, expected is %016x",
                                               manifest->name.ToString(), digest, manifest->state_digest));
  }
  manifest->state_digest = digest;
  return absl::OkStatus();
}

// The manifest that is there, if it is ours: we have been here before, and the answer was lost.
absl::StatusOr<Manifest> FindOurManifest(Storage& storage, Manifest manifest) {
  const std::string name = ObjectName(manifest.name, kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadObject(storage, name, kMaxManifestBytes));
  const absl::StatusOr<Manifest> there = ParseManifest(text);
  if (there.ok()) {
    manifest.model = there->model;
    if (manifest.state_digest == 0) manifest.state_digest = there->state_digest;
    if (*there == manifest) return manifest;
  }
  return absl::AlreadyExistsError(absl::StrCat(storage.Describe(), "/", name, ": it exists, and is another one"));
}

// A model file without a manifest is left from an attempt of our own: nobody else has this name.
absl::StatusOr<StoredFile> ReplaceModelFile(Storage& storage, const Manifest& manifest, const StoredChunks& chunks,
                                            const std::vector<StoredObject>& objects) {
  const std::string name = ObjectName(manifest.name, kModelName);
  if (Contains(objects, name)) RETURN_IF_ERROR(storage.Delete(name));
  CrashPoint(kCrashModelBefore);
  return WriteModelFile(storage, manifest, chunks);
}

absl::Status CreateManifest(Storage& storage, const Manifest& manifest) {
  const std::string name = ObjectName(manifest.name, kManifestName);
  const std::string text = FormatManifest(manifest);
  RETURN_IF_ERROR(Annotate(ParseManifest(text).status(), "our own manifest"));
  CrashPoint(kCrashManifestBefore);
  const absl::Status created = storage.Create(name, text);
  if (absl::IsAlreadyExists(created)) return FindOurManifest(storage, manifest).status();
  RETURN_IF_ERROR(created);
  CrashPoint(kCrashManifestAfter);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> CommitCheckpoint(Storage& storage, Fence& fence, Manifest manifest) {
  RETURN_IF_ERROR(fence.Check());
  if (manifest.validation_loss && !std::isfinite(*manifest.validation_loss)) manifest.validation_loss.reset();
  ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage.List(manifest.name.ToString() + "/"));
  if (Contains(objects, ObjectName(manifest.name, kManifestName))) return FindOurManifest(storage, std::move(manifest));
  RETURN_IF_ERROR(CheckShards(manifest, objects));
  ASSIGN_OR_RETURN(const StoredChunks chunks, ReadIndexes(storage, manifest));
  RETURN_IF_ERROR(SetStateDigest(chunks, &manifest));
  ASSIGN_OR_RETURN(manifest.model, ReplaceModelFile(storage, manifest, chunks, objects));
  RETURN_IF_ERROR(fence.Check());
  RETURN_IF_ERROR(CreateManifest(storage, manifest));
  return manifest;
}

}  // namespace holdfast
