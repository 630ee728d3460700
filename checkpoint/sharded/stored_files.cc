#include "checkpoint/sharded/stored_files.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "framework/base/status.h"
#include "framework/base/thread_pool.h"

namespace holdfast {
namespace {

constexpr int kIndexThreads = 4;  // that wait for a storage far away

using Sizes = absl::flat_hash_map<absl::string_view, uint64_t>;

void CheckSize(const Manifest& manifest, const StoredFile& file, const Sizes& sizes,
               std::vector<FileProblem>* problems) {
  const std::string name = ObjectName(manifest.name, file.name);
  const auto found = sizes.find(name);
  if (found == sizes.end()) {
    problems->push_back({file.name, "is missing"});
  } else if (found->second != file.size) {
    problems->push_back({file.name, absl::StrCat("has ", found->second, " bytes instead of ", file.size)});
  }
}

absl::StatusOr<std::vector<StoredChunk>> ReadIndex(Storage& storage, const Manifest& manifest,
                                                   const StoredShard& shard) {
  const std::string name = ObjectName(manifest.name, shard.index.name);
  const absl::StatusOr<std::string> bytes = ReadObject(storage, name, kMaxShardIndexBytes);
  if (!bytes.ok()) return DamagedUnlessPassing(bytes.status(), name);
  if (bytes->size() != shard.index.size || DigestFile(*bytes) != shard.index.digest) {
    return absl::DataLossError(absl::StrCat(name, ": its contents do not have the manifest's digest"));
  }
  absl::StatusOr<std::vector<StoredChunk>> chunks = ParseShardIndex(*bytes, shard.data.size);
  if (!chunks.ok()) return DamagedUnlessPassing(chunks.status(), name);
  if (static_cast<int64_t>(chunks->size()) != shard.chunks) {
    return absl::DataLossError(
        absl::StrCat(name, ": ", chunks->size(), " chunks where the manifest says ", shard.chunks));
  }
  return chunks;
}

}  // namespace

std::string ObjectName(const CheckpointName& checkpoint, const std::string& file) {
  return absl::StrCat(checkpoint.ToString(), "/", file);
}

bool IsOfCheckpoints(absl::string_view first) {
  return CheckpointName::Parse(first).has_value() || IsFenceClaim(first);
}

absl::StatusOr<bool> HoldsCheckpoints(Storage& storage) {
  ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage.List(""));
  return std::any_of(objects.begin(), objects.end(), [](const StoredObject& object) {
    return IsOfCheckpoints(object.name.substr(0, object.name.find('/')));
  });
}

bool Contains(absl::Span<const StoredObject> objects, const std::string& name) {
  return std::any_of(objects.begin(), objects.end(), [&](const StoredObject& object) { return object.name == name; });
}

absl::StatusOr<Manifest> ReadManifest(Storage& storage, const CheckpointName& name) {
  ASSIGN_OR_RETURN(const std::string text, ReadObject(storage, ObjectName(name, kManifestName), kMaxManifestBytes));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text));
  if (manifest.name == name) return manifest;
  return absl::DataLossError(absl::StrCat("the manifest is that of ", manifest.name.ToString()));
}

absl::Status DamagedUnlessPassing(const absl::Status& status, const std::string& what) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kNotFound:
      return absl::DataLossError(absl::StrCat(what, ": it is missing"));
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      return absl::DataLossError(absl::StrCat(what, ": ", std::string(status.message())));
    default:
      return Annotate(status, what);
  }
}

std::vector<FileProblem> FindSizeProblemsOfShards(const Manifest& manifest, absl::Span<const StoredObject> objects) {
  Sizes sizes;
  for (const StoredObject& object : objects) sizes.emplace(object.name, object.size);
  std::vector<FileProblem> problems;
  for (const StoredShard& shard : manifest.shards) {
    CheckSize(manifest, shard.data, sizes, &problems);
    CheckSize(manifest, shard.index, sizes, &problems);
  }
  return problems;
}

std::vector<FileProblem> FindSizeProblems(const Manifest& manifest, absl::Span<const StoredObject> objects) {
  std::vector<FileProblem> problems = FindSizeProblemsOfShards(manifest, objects);
  Sizes sizes;
  for (const StoredObject& object : objects) sizes.emplace(object.name, object.size);
  CheckSize(manifest, manifest.model, sizes, &problems);
  return problems;
}

absl::StatusOr<StoredChunks> ReadIndexes(Storage& storage, const Manifest& manifest) {
  const size_t count = manifest.shards.size();
  std::vector<absl::StatusOr<std::vector<StoredChunk>>> results(count);
  ThreadPool threads(static_cast<int>(std::min<size_t>(count, kIndexThreads)));
  kernels::ParallelFor(threads, static_cast<int64_t>(count), [&](int64_t i, int) {
    results[static_cast<size_t>(i)] = ReadIndex(storage, manifest, manifest.shards[static_cast<size_t>(i)]);
  });
  StoredChunks chunks;
  for (auto& result : results) {
    ASSIGN_OR_RETURN(std::vector<StoredChunk> shard, std::move(result));
    chunks.push_back(std::move(shard));
  }
  RETURN_IF_ERROR(DamagedUnlessPassing(CheckCoverage(manifest.tensors, chunks), manifest.name.ToString()));
  return chunks;
}

uint64_t StateDigestOf(const StoredChunks& chunks, absl::Span<const ChunkRef> by_row) {
  std::vector<uint64_t> digests;
  digests.reserve(by_row.size());
  for (const ChunkRef ref : by_row) {
    digests.push_back(chunks[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)].digest);
  }
  return DigestBytes({reinterpret_cast<const std::byte*>(digests.data()), digests.size() * sizeof(uint64_t)});
}

}  // namespace holdfast
