#pragma once
// model.h5: whole tensors as virtual datasets over the shard files, for people and their tools. Nothing of ours reads
// them: a source that is missing reads as fill values (NaN here, so that people see it) without an error.

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/shard_index.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// `indexes` by shard of the manifest. InvalidArgument if they do not belong to its tensors.
absl::StatusOr<StoredFile> WriteModelFile(Storage& storage, const Manifest& manifest,
                                          const std::vector<std::vector<StoredChunk>>& indexes);

}  // namespace holdfast
