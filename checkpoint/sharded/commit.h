#pragma once
// The moment a checkpoint begins to exist.

#include "absl/status/statusor.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Everything that makes a checkpoint exist once all shards are durable: fence, sizes, indexes read back, whole
/// coverage, state digest, model.h5, fence again, and last the manifest. Fills in state_digest and model of `manifest`;
/// a state_digest that is set must be the right one. Can be repeated after an error that may pass, with the same
/// manifest. FailedPrecondition: somebody else owns the storage. AlreadyExists: this name has been used before.
absl::StatusOr<Manifest> CommitCheckpoint(Storage& storage, Fence& fence, Manifest manifest);

}  // namespace holdfast
