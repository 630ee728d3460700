#pragma once
// What a manifest says about files, against the files.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/reshard_plan.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// "step-0000001000-g7/shard-0-of-2.h5".
std::string ObjectName(const CheckpointName& checkpoint, const std::string& file);

/// Whether objects that are so called, or whose names begin with this and a slash, belong to checkpoints: directories
/// that a user names for them may have others.
bool IsOfCheckpoints(absl::string_view first);
/// Whether there are any.
absl::StatusOr<bool> HoldsCheckpoints(Storage& storage);

bool Contains(absl::Span<const StoredObject> objects, const std::string& name);

/// The manifest of `name`, or why it cannot be used (DataLoss or InvalidArgument; Unimplemented if it is of a later
/// version), or why that cannot be told.
absl::StatusOr<Manifest> ReadManifest(Storage& storage, const CheckpointName& name);

/// An error about a stored object: DataLoss where `status` says that it is missing or not what it should be; anything
/// else (no access, no connection, no handles) may pass and keeps its code.
absl::Status DamagedUnlessPassing(const absl::Status& status, const std::string& what);

struct FileProblem {
  std::string file;  // in the checkpoint's directory
  std::string what;  // "is missing"
  std::string ToString() const { return file + " " + what; }
};

/// What is wrong with the sizes of a checkpoint's files.
std::vector<FileProblem> FindSizeProblems(const Manifest& manifest, absl::Span<const StoredObject> objects);

/// Those that make the checkpoint useless: all but the model file's, which is for people only.
std::vector<FileProblem> FindSizeProblemsOfShards(const Manifest& manifest, absl::Span<const StoredObject> objects);

/// The indexes of all shards, each with the digest and the number of chunks the manifest says, together covering every
/// tensor. DataLoss, naming the file. Reads several at once.
absl::StatusOr<StoredChunks> ReadIndexes(Storage& storage, const Manifest& manifest);

/// XXH3-64 of the chunks' digests in canonical order: StateDigest of framework/parallel/sharded_state.h.
uint64_t StateDigestOf(const StoredChunks& chunks, absl::Span<const ChunkRef> by_row);

}  // namespace holdfast
