#pragma once
// The run's checkpoints as its coordinator keeps them: which there are at the start, making one exist once all its
// parts are durable, and which may go then. Storage takes its time, so all but the start happens on a thread of its
// own.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/storage/storage.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/task_thread.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Thread-safety: Commit from one thread.
class CheckpointKeeper {
 public:
  /// Claims the storage: whoever had it before can commit nothing more. `tensors`: of the model, in canonical order.
  /// `config` and `directory` must outlive the keeper.
  static absl::StatusOr<std::unique_ptr<CheckpointKeeper>> Open(const Config& config, const RunDirectory& directory,
                                                                std::unique_ptr<Storage> storage,
                                                                std::vector<StoredTensor> tensors);

  Storage& storage() { return *storage_; }
  /// As they were found by Open.
  const Catalog& found() const { return found_; }

  /// Makes it exist, and deletes what need not be kept; then calls `done`, from a thread of its own.
  void Commit(const CommitCheckpointAction& commit, std::function<void(const CheckpointDoneEvent&)> done);
  /// Waits for all that was begun.
  void Drain() { thread_.Drain(); }

 private:
  CheckpointKeeper(const Config& config, const RunDirectory& directory, std::unique_ptr<Storage> storage,
                   std::vector<StoredTensor> tensors)
      : config_(config), directory_(directory), storage_(std::move(storage)), tensors_(std::move(tensors)) {}

  Manifest Describe(const CommitCheckpointAction& commit) const;
  absl::Status MakeExist(const Manifest& manifest, CheckpointDoneEvent* done);
  void Tidy(const CheckpointName& newest, CheckpointDoneEvent* done);

  const Config& config_;
  const RunDirectory& directory_;
  std::unique_ptr<Storage> storage_;
  std::vector<StoredTensor> tensors_;
  RunDigests digests_ = DigestsOf(config_);
  std::unique_ptr<Fence> fence_;
  Catalog found_;
  std::vector<CheckpointChoice> usable_;  // of the thread
  TaskThread thread_;                     // last: it uses all of the above
};

/// Newest first.
std::vector<CheckpointChoice> ChoicesOf(const Catalog& catalog);

/// Of what decides the bits of a run: not of how it is spread, watched, saved or shown, nor of where its files lie.
uint64_t BitsDigest(const Config& config);

}  // namespace holdfast
