#pragma once
// Whose checkpoints a storage holds (checkpoint/sharded/fence.h), so that a command that would disturb a run can see
// that it is alive.

#include <string>

#include "absl/status/status.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// This process, for Fence::Claim; `what` it is doing: "holdfast ckpt prune".
std::string FenceOwner(const std::string& what);

/// OK if nobody claimed `storage`, or the process that did last has ended, or is this one. Naming the owner, Aborted if
/// it runs, FailedPrecondition if that cannot be told from here: of another machine, container or boot.
absl::Status CheckNotInUse(Storage& storage);

}  // namespace holdfast
