#pragma once
// The life of a worker: it joins, takes its place in a world, steps, votes, updates, validates, saves. Which of these
// comes next the session says (elastic/control/worker_session.h); Run reads as the story of a run and nothing else.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "elastic/worker/checkpointer.h"
#include "elastic/worker/session_shell.h"
#include "framework/config/config.h"
#include "framework/data/loader.h"
#include "framework/train/trainer.h"

namespace holdfast {

/// Connects the members of a world: communicator i for the ranks of groups[i], null where this rank is not in it. Fails
/// as ConnectGloo does.
using ConnectFn = std::function<absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(
    const World& world, int rank, const std::vector<std::vector<int>>& groups, std::stop_token stop,
    Deadline deadline)>;

/// A test's knob: memory that goes bad once.
struct BitFlip {
  enum class Where {
    kMirror,   // one bit of the first moment of a chunk that others sum
    kOwner,    // of one that is summed here
    kWeights,  // a bit of each weight of one that is summed here
  };
  int64_t after_step = 0;  // 0: never
  Where where = Where::kOwner;
};

/// Everything a worker works with; all of it outlives the worker.
struct WorkerDependencies {
  const Config* config = nullptr;
  Trainer* trainer = nullptr;
  const Dataset* training = nullptr;
  const Dataset* validation = nullptr;  // null = none
  SessionShell* shell = nullptr;
  Checkpointer* checkpointer = nullptr;  // null = no checkpoints
  ConnectFn connect;
  bool connects_alone = false;  // also in a world of one, without groups, which may be too few for the transport
  /// Is told of failures that came from other workers or their absence, before the coordinator is; may be null. `stop`
  /// is requested when the reason is that the world is to change.
  std::function<void(const absl::Status& status, std::stop_token stop)> on_peer_failure = nullptr;
  /// Writes the model that `read` gives; called on rank 0 of the world of that generation.
  std::function<absl::Status(const ReadWeightsFn& read, uint64_t generation)> save_model;
  /// A test's knob: each microbatch takes this much longer.
  std::chrono::milliseconds slowdown{0};
  BitFlip flip;
  /// Another one: what the communicator of units that are computed in parts is wrapped in; null = nothing.
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> wrap_parts = nullptr;
};

/// Thread-safety: none.
class Worker {
 public:
  explicit Worker(const WorkerDependencies& dependencies);

  struct Exit {
    int code = 0;
    std::string reason;
    bool refused = false;  // by the coordinator; it would refuse any process in this one's place
  };
  /// Returns when the run is over.
  Exit Run();

 private:
  absl::StatusOr<RecoveredMessage> Recover(const RecoverTask& task, const SessionShell::Next& next);
  absl::Status Load(const std::string& name, ShardedState& state, const std::stop_token& stop);
  absl::StatusOr<WorldCommunicators> Connect(const WorldMessage& message, const Placement& placement,
                                             const std::stop_token& stop);
  absl::Status AwaitMirrors(int64_t step) const;
  absl::StatusOr<VoteMessage> Prepare(const StepTask& task, const std::stop_token& stop);
  void Update(const UpdateTask& task);
  absl::Status End(const EndingTask& task, const std::stop_token& stop);
  void BeginSave(int64_t step, uint64_t generation) const;
  absl::Status SaveModel(uint64_t generation) const;
  absl::Status Validate(uint64_t generation, int64_t step, const std::stop_token& stop) const;
  void PointLoaderAt(const StepTask& task);
  bool IsDigestStep(int64_t step) const;

  /// Answers the task with the event that `result` is, or with its failure, in the phase that is at work.
  template <typename Result, typename MakeEvent>
  void Answer(const Result& result, const std::stop_token& stop, int64_t step, uint64_t generation,
              MakeEvent&& make_event);

  const WorkerDependencies& deps_;
  BitFlip flip_;  // that is still to come
  SampleOrder order_;
  std::optional<Loader> loader_;
  StepPlan loader_plan_;  // what the loader reads from: its next step, and how microbatches are spread
  int rank_ = 0, world_size_ = 0;
  uint64_t entered_ = 0;         // the world whose state was fetched last
  bool bad_checkpoint_ = false;  // the one that was to be loaded last
  StepResult prepared_;
};

}  // namespace holdfast
