#pragma once
// Which checkpoints of a place may go.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/place/checkpoint_place.h"
#include "checkpoint/sharded/catalog.h"

namespace holdfast {

/// As the config of the run says, else the one inside the newest checkpoint. InvalidArgument if that cannot be read:
/// the defaults could keep less.
absl::StatusOr<Retention> ConfiguredRetention(const CheckpointPlace& place, const Catalog& catalog);

struct Deletion {
  std::string name, reason;
  uint64_t bytes = 0;
  bool valid = false;  // by its manifest and the sizes of its files
};

/// What `retention` does not keep, what was never finished or was given up and, if `damaged`, what is damaged. Pure.
std::vector<Deletion> PlanDeletions(const Catalog& catalog, const Retention& retention, bool damaged);

}  // namespace holdfast
