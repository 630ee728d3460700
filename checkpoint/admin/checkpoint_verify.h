#pragma once
// Reads every byte of checkpoints and compares it with its digest.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/admin/checkpoint_target.h"

namespace holdfast {

/// A checkpoint to look at: one that the catalog lists, or one that it has refused already.
struct Verifiable {
  std::string name;
  const CatalogEntry* entry = nullptr;  // null = refused, for `reason`
  std::string reason;
};

/// `all` of those that are finished, else the newest of those that `options` ask for, also if it is damaged:
/// verifying has to report that one. Pointers into `catalog`.
absl::StatusOr<std::vector<Verifiable>> ChooseVerifiable(const Catalog& catalog, const CheckpointPlace& place,
                                                         const TargetOptions& options, bool all);

/// What is wrong with it; empty if every byte is as it was written.
absl::StatusOr<std::vector<std::string>> VerifyCheckpoint(Storage& storage, const Verifiable& checkpoint, int threads,
                                                          const ByteProgress& progress);

}  // namespace holdfast
