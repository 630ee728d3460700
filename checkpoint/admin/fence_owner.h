#pragma once
// Whose checkpoints a storage holds (checkpoint/sharded/fence.h), in words that both people and this program read:
// "process 4711 on node-3, run directory /runs/a". Whoever claims a fence names itself by FenceOwner, so that a command
// that would disturb a run can see that it is alive.

#include <string>

#include "absl/status/status.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// This process, for Fence::Claim; `what` it is doing: "holdfast ckpt prune".
std::string FenceOwner(const std::string& what);

/// FailedPrecondition, naming the owner, if the process that claimed `storage` last lives on this machine, or if it
/// was on another one, where nobody can tell. OK if nobody claimed it.
absl::Status CheckNotInUse(Storage& storage);

}  // namespace holdfast
