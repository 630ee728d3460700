#pragma once
// The run's checkpoints as its coordinator keeps them: which there are at the start, making one exist once all its
// parts are durable, and which may go then. Storage takes its time, so all but the start happens on a thread of its
// own.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/fence.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/task_thread.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Thread-safety: Commit from one thread.
class CheckpointKeeper {
 public:
  using Answer = std::function<void(const CoordinatorEvent&)>;  // called from a thread of the keeper's own

  /// Claims the storage: whoever had it before can commit nothing more. `tensors`: of the model, in canonical order.
  /// `config` and `directory` must outlive the keeper. `past`: of the run. `may_claim`: as in Fence::Claim.
  /// `storage_stop`: ends what of `storage` waits for a server; requested by Finish, and when the keeper goes.
  static absl::StatusOr<std::unique_ptr<CheckpointKeeper>> Open(const Config& config, const RunDirectory& directory,
                                                                std::unique_ptr<Storage> storage,
                                                                std::vector<StoredTensor> tensors,
                                                                const CoordinatorState& past,
                                                                const std::function<absl::Status()>& may_claim,
                                                                std::stop_source storage_stop = {});
  ~CheckpointKeeper() { storage_stop_.request_stop(); }

  Storage& storage() { return *storage_; }
  /// As they were found by Open.
  const Catalog& found() const { return found_; }
  /// With which the run resumes: a generation that was never used in the storage, and the barriers that it knows.
  const CoordinatorState& state() const { return state_; }

  /// Makes it exist, answers (CheckpointDoneEvent), then deletes what need not be kept, and answers again
  /// (CheckpointsTidiedEvent).
  void Commit(const CommitCheckpointAction& commit, Answer answer);
  /// Reads all of it, now.
  CheckpointVerifiedEvent Read(const std::string& name);
  /// Does so later and answers (CheckpointVerifiedEvent). Where our claim is missing and is not made anew, nobody knows
  /// whether it is damaged.
  void Verify(const std::string& name, Answer answer);
  /// What lies beyond the branch is given up: it is not made to exist any more, and goes when there is a newer one or
  /// no room for one.
  void GoBack(const Branch& branch);
  /// Deletes later what earlier lives of the run have not finished, or not finished deleting.
  void ClearAway();
  /// A checkpoint could not be written. Makes the run's own directory of checkpoints again if somebody has removed it,
  /// deletes what was never finished or given up, of checkpoints that were begun before `next`, and what writers that
  /// are gone have left, and answers (CheckpointsTidiedEvent), if it can look what there is.
  void MakeRoom(const CheckpointName& next, Answer answer);
  /// Waits for all commits that were begun, and then for a moment for what else is to be done.
  void Finish();

 private:
  CheckpointKeeper(const Config& config, const RunDirectory& directory, std::unique_ptr<Storage> storage,
                   std::vector<StoredTensor> tensors)
      : config_(config), directory_(directory), storage_(std::move(storage)), tensors_(std::move(tensors)) {}

  Manifest Describe(const CommitCheckpointAction& commit) const;
  Branch BranchNow();
  absl::Status PublishManifest(const Manifest& manifest, CheckpointDoneEvent* done);
  void ApplyRetention(const CheckpointName& newest, CheckpointsTidiedEvent* tidied);
  absl::Status MayClaim();
  void MakeDirectoryAgain();
  std::string TakeStock(const Catalog& catalog);
  /// How many cannot be deleted, and why the first of them cannot; empty if all can.
  std::string Delete(const std::vector<CheckpointName>& doomed);

  const Config& config_;
  const RunDirectory& directory_;
  std::unique_ptr<Storage> storage_;
  std::vector<StoredTensor> tensors_;
  RunDigests digests_ = DigestsOf(config_);
  std::function<absl::Status()> may_claim_;
  std::unique_ptr<Fence> fence_;
  Catalog found_;
  CoordinatorState state_;
  std::vector<CheckpointChoice> usable_;  // of the thread
  KnownManifests manifests_;              // likewise
  std::stop_source finishing_, storage_stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  Branch branch_;
  int commits_ = 0;    // begun and not answered
  TaskThread thread_;  // last: it uses all of the above
};

/// Newest first.
std::vector<CheckpointChoice> ChoicesOf(const Catalog& catalog);

/// Reads all of the checkpoint, which must be of these tensors, with as many threads.
CheckpointVerifiedEvent ReadWhole(Storage& storage, const std::string& name, const std::vector<StoredTensor>& tensors,
                                  int64_t threads, std::stop_token stop = {});

}  // namespace holdfast
