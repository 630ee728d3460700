#include "checkpoint/sharded/catalog.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/commit_crash_points.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"
#include "framework/storage/crash_point.h"

namespace holdfast {
namespace {

// Newest first.
using Directories = std::map<CheckpointName, std::vector<StoredObject>, std::greater<>>;

Directories GroupByCheckpoint(std::vector<StoredObject> objects) {
  Directories directories;
  for (StoredObject& object : objects) {
    const size_t slash = object.name.find('/');
    if (slash == std::string::npos) continue;
    const std::optional<CheckpointName> name = CheckpointName::Parse(absl::string_view(object.name).substr(0, slash));
    if (name) directories[*name].push_back(std::move(object));
  }
  return directories;
}

const StoredObject* ManifestIn(const std::vector<StoredObject>& objects, const CheckpointName& name) {
  const auto found =
      std::find_if(objects.begin(), objects.end(),
                   [wanted = ObjectName(name, kManifestName)](const auto& o) { return o.name == wanted; });
  return found == objects.end() ? nullptr : &*found;
}

/// `bytes`: that it has, as it is listed. `known` may be null.
absl::StatusOr<Manifest> ReadOnce(Storage& storage, const CheckpointName& name, uint64_t bytes, KnownManifests* known) {
  if (known == nullptr) return ReadManifest(storage, name);
  const auto found = known->find(name);
  if (found != known->end() && found->second.bytes == bytes) return found->second.manifest;
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(storage, name));
  (*known)[name] = {bytes, manifest};
  return manifest;
}

absl::Status Judge(Storage& storage, const Branch& branch, const CheckpointName& name,
                   const std::vector<StoredObject>& objects, KnownManifests* known, Catalog* catalog) {
  uint64_t bytes = 0;
  for (const StoredObject& object : objects) bytes += object.size;
  const auto reject = [&](std::string reason, bool unfinished = false, bool given_up = false) {
    catalog->rejected.push_back({name.ToString(), std::move(reason), unfinished, given_up, bytes});
    return absl::OkStatus();
  };
  const StoredObject* const listed = ManifestIn(objects, name);
  if (listed == nullptr) {
    return reject("no manifest: not finished, or being written or deleted", /*unfinished=*/true);
  }
  if (!branch.Includes(name.generation, name.step)) {
    return reject("excluded: the run has rewound to an earlier step since", /*unfinished=*/false, /*given_up=*/true);
  }
  absl::StatusOr<Manifest> manifest = ReadOnce(storage, name, listed->size, known);
  if (absl::IsNotFound(manifest.status())) {
    ASSIGN_OR_RETURN(const std::vector<StoredObject> now, storage.List(name.ToString() + "/"));
    if (ManifestIn(now, name) == nullptr) return absl::OkStatus();  // deleted since the listing
    return absl::UnavailableError(
        absl::StrCat("its manifest is listed, and cannot be read: ", manifest.status().message()));
  }
  if (absl::IsDataLoss(manifest.status()) || absl::IsInvalidArgument(manifest.status())) {
    return reject(absl::StrCat(kManifestName, ": ", std::string(manifest.status().message())));
  }
  RETURN_IF_ERROR(manifest.status());
  const std::vector<FileProblem> problems = FindSizeProblemsOfShards(*manifest, objects);
  if (!problems.empty()) {
    const std::string more = problems.size() > 1 ? absl::StrCat(", and ", problems.size() - 1, " more") : "";
    return reject(problems.front().ToString() + more);
  }
  catalog->valid.push_back({*std::move(manifest), bytes});
  return absl::OkStatus();
}

/// Empty where there is none, or none that is of any use.
absl::StatusOr<std::string> ReadToPutBack(Storage& storage, const std::string& manifest) {
  absl::StatusOr<std::string> text = ReadObject(storage, manifest, kMaxManifestBytes);
  const absl::Status& status = text.status();
  if (absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) return "";
  return text;
}

/// Whether all shards are there, of which this manifest speaks: a new owner may have begun to delete it as well.
bool IsWholeWith(Storage& storage, const CheckpointName& name, const std::string& manifest) {
  const absl::StatusOr<Manifest> parsed = ParseManifest(manifest);
  const absl::StatusOr<std::vector<StoredObject>> objects = storage.List(name.ToString() + "/");
  return parsed.ok() && objects.ok() && FindSizeProblemsOfShards(*parsed, *objects).empty();
}

}  // namespace

absl::StatusOr<Catalog> ScanCheckpoints(Storage& storage, KnownManifests* known) {
  ASSIGN_OR_RETURN(std::vector<StoredObject> objects, storage.List(""));
  ASSIGN_OR_RETURN(const Branch branch, ReadBranch(storage));
  Catalog catalog;
  const Directories directories = GroupByCheckpoint(std::move(objects));
  for (const auto& [name, files] : directories) {
    RETURN_IF_ERROR(Annotate(Judge(storage, branch, name, files, known, &catalog), name.ToString()));
  }
  if (known != nullptr) {
    std::erase_if(*known, [&](const auto& entry) {
      const auto found = directories.find(entry.first);
      return found == directories.end() || ManifestIn(found->second, entry.first) == nullptr;
    });
  }
  return catalog;
}

std::vector<CheckpointName> ChooseDeletions(const std::vector<CatalogEntry>& valid, const Retention& retention,
                                            const std::vector<CheckpointName>& pinned) {
  std::set<CheckpointName> kept(pinned.begin(), pinned.end());
  std::vector<const Manifest*> newest_of_step;
  for (const CatalogEntry& entry : valid) {
    const Manifest& manifest = entry.manifest;
    if (newest_of_step.empty() || newest_of_step.back()->name.step != manifest.name.step) {
      newest_of_step.push_back(&manifest);
    }
  }
  int64_t number = 0;
  for (const Manifest* manifest : newest_of_step) {
    const bool is_last = number++ < std::max<int64_t>(retention.keep_last, 1);
    const bool is_nth = retention.keep_every_steps > 0 && manifest->name.step % retention.keep_every_steps == 0;
    if (is_last || is_nth) kept.insert(manifest->name);
  }
  // Of those with one loss the oldest: earlier versions gave it to the checkpoints after the validated one, too.
  std::map<double, CheckpointName> by_loss;
  for (const Manifest* manifest : newest_of_step) {
    if (manifest->validation_loss.has_value()) by_loss.insert_or_assign(*manifest->validation_loss, manifest->name);
  }
  number = 0;
  for (auto it = by_loss.begin(); it != by_loss.end() && number < retention.keep_best; ++it, ++number) {
    kept.insert(it->second);
  }
  std::vector<CheckpointName> deletions;
  for (auto entry = valid.rbegin(); entry != valid.rend(); ++entry) {
    if (!kept.contains(entry->manifest.name)) deletions.push_back(entry->manifest.name);
  }
  return deletions;
}

absl::Status DeleteCheckpoint(Storage& storage, const std::string& name,
                              const std::function<absl::Status()>& still_ours) {
  const std::optional<CheckpointName> checkpoint = CheckpointName::Parse(name);
  if (!checkpoint) return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not the name of a checkpoint"));
  const std::string manifest = ObjectName(*checkpoint, kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadToPutBack(storage, manifest));
  CrashPoint(kCrashDeleteBefore);
  RETURN_IF_ERROR(storage.Delete(manifest));
  CrashPoint(kCrashDeleteAfter);
  if (absl::Status ours = still_ours(); !ours.ok()) {
    if (IsWholeWith(storage, *checkpoint, text)) storage.Create(manifest, text).IgnoreError();
    return ours;
  }
  ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage.List(name + "/"));
  for (const StoredObject& object : objects) {
    RETURN_IF_ERROR(storage.Delete(object.name));
    CrashPoint(kCrashDeleteFile);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
