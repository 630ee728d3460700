#pragma once
// Fills the mirrors of a new world while its first step is prepared: that changes neither the state they are copied
// from nor the one they belong to.
//
// Thread-safety: Abort from any thread, everything else from one.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "framework/base/task_thread.h"
#include "framework/parallel/placed_state.h"
#include "framework/parallel/transfer.h"

namespace holdfast {

class MirrorFill {
 public:
  struct Dependencies {
    std::vector<ChunkTransfer> transfers;  // of all ranks, to mirrors
    const ShardedState* old_state = nullptr;
    PlacedState* target = nullptr;
    std::chrono::milliseconds timeout{0};
    std::unique_ptr<Communicator> communicator;
    StepProgress* progress = nullptr;
    /// Called by another thread when all mirrors of this rank are there, or never will be. Not null.
    std::function<void(const absl::Status& status)> done;
  };

  /// What `dependencies` points to must outlive it.
  explicit MirrorFill(Dependencies dependencies);
  /// Ends what is under way.
  ~MirrorFill();

  /// That are still to come to this rank when it is made.
  int64_t bytes() const { return bytes_; }
  void Start();
  /// Waits for the end.
  absl::Status Finish();
  void Abort(const std::string& reason) const { deps_.communicator->Abort(reason); }

 private:
  Dependencies deps_;
  int64_t bytes_;
  absl::Status status_;  // written by the thread
  TaskThread thread_;    // last: its task uses all of the above
};

}  // namespace holdfast
