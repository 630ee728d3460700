#pragma once
// Which checkpoint a user means by a place and a step.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/place/checkpoint_place.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"

namespace holdfast {

/// Options that the subcommands of `holdfast ckpt` share.
struct TargetOptions {
  std::string where;
  std::optional<int64_t> step;  // empty = the newest checkpoint
  PlaceOptions place;
};

/// The checkpoint `options` ask for: of several of one step the one of the newest generation. NotFound names the steps
/// that are there; DataLoss, saying why, if it is there and cannot be used.
absl::StatusOr<const CatalogEntry*> ChooseCheckpoint(const Catalog& catalog, const CheckpointPlace& place,
                                                     const TargetOptions& options);

/// One checkpoint, open. In order of construction.
struct OpenedCheckpoint {
  CheckpointPlace place;
  Catalog catalog;
  const CatalogEntry* entry = nullptr;
  std::unique_ptr<CheckpointReader> reader;
};
/// Warns where the newest is meant and a newer one is damaged.
absl::StatusOr<std::unique_ptr<OpenedCheckpoint>> OpenCheckpoint(const TargetOptions& options);

/// "step-0000001000-g7 in /data/run/checkpoints".
std::string Describe(const CheckpointName& name, const Storage& storage);

}  // namespace holdfast
