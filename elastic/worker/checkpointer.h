#pragma once
// Writes this worker's parts of checkpoints, on a thread of its own, while training goes on: chunks come from a
// Snapshot, the result goes to the coordinator. Uses no communicator. And loads: the chunks this worker holds, from
// whatever world wrote them.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/sharded/shard_writer.h"
#include "elastic/control/messages.h"
#include "framework/base/task_thread.h"
#include "framework/config/config.h"
#include "framework/parallel/snapshot.h"
#include "framework/parallel/step_progress.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// Thread-safety: none, but for what the thread inside does.
class Checkpointer {
 public:
  struct Dependencies {
    /// For what is written when that is needed first, and for each load. Once `stop` is requested, what waits for a
    /// server should be Cancelled soon.
    std::function<absl::StatusOr<std::unique_ptr<Storage>>(const std::stop_token& stop)> open_storage;
    const CheckpointConfig* config = nullptr;
    const StateLayout* layout = nullptr;
    StepProgress* progress = nullptr;
    std::function<void(const SavedMessage&)> send;  // from any thread
  };
  /// Everything in `dependencies` must outlive it.
  explicit Checkpointer(Dependencies dependencies) : deps_(std::move(dependencies)) {}
  /// Gives up what is not written yet, also what is on its way.
  ~Checkpointer();

  size_t staging_bytes() const { return static_cast<size_t>(deps_.config->staging_mib) << 19; }  // half; half is queued

  /// The part of `rank` in the checkpoint of `step` that the members of a world write.
  void Begin(const CheckpointName& name, int rank, int world_size, std::shared_ptr<Snapshot> snapshot);
  /// Returns when everything begun is written or has failed, or soon after `stop` is requested.
  void Finish(const std::stop_token& stop);
  /// How long updates were held up since this was last asked.
  double TakeStallSeconds();

  /// Cancelled soon after `stop` is requested.
  absl::Status Load(const std::string& name, ShardedState& state, const std::stop_token& stop);

 private:
  absl::StatusOr<Storage*> ClaimedStorage();
  void Write(const CheckpointName& name, int rank, int world_size, Snapshot& snapshot);
  absl::StatusOr<ShardReport> WriteShard(const ShardWriterOptions& options, Snapshot& snapshot);
  Compression ChooseCompression();
  void Learn(const ShardReport& report);
  void Rehearse(const Snapshot::Captured& chunk);

  const Dependencies deps_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  // Shared with the trainer, which copies into them:
  std::deque<std::shared_ptr<Snapshot>> unwritten_;  // the first is being written
  std::shared_ptr<Snapshot> current_;
  double stall_taken_ = 0, stall_left_ = 0;

  std::stop_source stopping_;

  // Of the thread:
  std::unique_ptr<Storage> storage_;
  // What compression: auto goes by.
  std::optional<double> file_rate_;          // bytes/s to the disk
  double codec_rate_ = 0, codec_ratio_ = 1;  // bytes/s of one thread; stored / raw

  TaskThread thread_;  // last: it uses all of the above
};

}  // namespace holdfast
