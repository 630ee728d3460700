#pragma once
// Who may write checkpoints: who came last.
//
//   HF_ASSIGN_OR_RETURN(std::unique_ptr<Fence> fence, Fence::Claim(*storage, "node-3, process 4711, /runs/a"));
//   ... before and after the long part of a commit ...
//   HF_RETURN_IF_ERROR(fence->Check());

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/storage/storage.h"

namespace holdfast {

/// A writer's claim on a storage: an object "fence-0000000003.json" that was never there before. Who has the highest
/// epoch owns the checkpoints; who finds a higher one than its own has been replaced, and must write no manifest.
/// Thread-safe.
class Fence {
 public:
  /// `owner`, for messages: host, process, run directory. Removes older claims. Unavailable if others claim without
  /// end.
  static absl::StatusOr<std::unique_ptr<Fence>> Claim(Storage& storage, const std::string& owner);
  /// OK while we own it; FailedPrecondition, naming the new owner, afterwards, and also if our claim has been removed:
  /// then somebody else may have claimed any number.
  absl::Status Check();
  uint64_t epoch() const { return epoch_; }

 private:
  Fence(Storage& storage, uint64_t epoch) : storage_(storage), epoch_(epoch) {}
  Storage& storage_;
  uint64_t epoch_;
};

}  // namespace holdfast
