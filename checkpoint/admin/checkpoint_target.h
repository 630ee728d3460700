#pragma once
// Which checkpoint a user means by a place and a step.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "framework/metrics/progress.h"
#include "framework/nn/layout.h"
#include "tools/checkpoint_storage.h"

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
absl::StatusOr<std::unique_ptr<OpenedCheckpoint>> OpenCheckpoint(const TargetOptions& options);

/// "step-0000001000-g7 in /data/run/checkpoints".
std::string Describe(const CheckpointName& name, const Storage& storage);

/// The chunks of the tensors of a manifest: those of the model it was made from, as they follow from the shapes alone.
absl::StatusOr<ParameterLayout> LayoutOf(const Manifest& manifest);

/// A progress bar that any thread may move. Thread-safe.
class SharedProgress {
 public:
  SharedProgress(std::string label, uint64_t total_bytes)
      : progress_(std::move(label), static_cast<int64_t>(total_bytes), "B") {}

  void Update(uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (bytes > done_) progress_.Update(static_cast<int64_t>(done_ = bytes));  // calls may overtake each other
  }
  void Add(uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    progress_.Update(static_cast<int64_t>(done_ += bytes));
  }
  void Finish() { progress_.Finish(); }
  void Clear() { progress_.Clear(); }

 private:
  std::mutex mutex_;
  uint64_t done_ = 0;
  Progress progress_;
};

}  // namespace holdfast
