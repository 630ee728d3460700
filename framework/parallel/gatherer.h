#pragma once
// Brings the weights of units together, ahead of the model, on a thread of its own (gather_plan.h says in which order
// and when). One Gatherer lives as long as a world.

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/task_thread.h"
#include "framework/comm/communicator.h"
#include "framework/parallel/gather_plan.h"
#include "framework/parallel/sharded_state.h"

namespace holdfast {

/// Thread-safety: Begin, Acquire, Release and SkipPass from one thread; Abort from any.
class Gatherer {
 public:
  /// `group`: the members of this rank's replica group, as Placement::Group orders them. `state` and `group` must
  /// outlive the gatherer. `rank`: this one in the world.
  static absl::StatusOr<std::unique_ptr<Gatherer>> Create(const ShardedState& state, int rank, Communicator& group,
                                                          Device& device, std::chrono::milliseconds timeout);
  ~Gatherer();

  /// Starts gathering for `passes` passes of `schedule`, of which two may be under way at a time. Every member of the
  /// group calls it alike.
  absl::Status Begin(const UnitSchedule& schedule, int64_t passes, bool two_at_a_time = false);
  /// The compute weights of a unit, for the pass under way in `lane`, once it is there; Cancelled when `stop` is
  /// requested, else why gathering failed.
  absl::StatusOr<std::byte*> Acquire(int unit, int lane, const std::stop_token& stop);
  /// `used`: the end of what reads them (null = it is done).
  void Release(int lane, const std::shared_ptr<Event>& used);
  /// Takes part in the lane's next pass without computing it.
  void SkipPass(int lane);
  /// Waits until all gathers are done: nobody reads this rank's part of the weights any more. A rank that skips passes
  /// is not held up by its own use of them.
  absl::Status Finish();
  void Abort(const std::string& reason);

 private:
  /// A range of a unit's compute weights, and where it lies when the slices of the members lie one after the other.
  struct Piece {
    Range bytes;
    int64_t packed = 0;
    bool mine = false;
  };
  struct Slices {
    std::vector<int64_t> counts, displacements;  // bytes, by member: in the unit, or one part after the other
    std::vector<Piece> pieces;                   // empty: each member's part is one range of the unit
  };

  Gatherer(const ShardedState& state, Communicator& group, Device& device, std::unique_ptr<Stream> stream,
           std::chrono::milliseconds timeout);
  Slices SlicesOf(int unit, int rank) const;
  void Run(const GatherPlan& plan);
  bool Released(const GatherPlan::Gather& gather) const;  // its slot; under mutex_
  absl::Status Gather(const GatherPlan::Gather& gather);
  std::byte* Destination(const GatherPlan::Gather& gather) const;
  absl::Status AllocateSlots(const GatherPlan& plan);

  const ShardedState& state_;
  Communicator& group_;
  Device& device_;
  std::unique_ptr<Stream> stream_;  // of the gathering thread
  std::chrono::milliseconds timeout_;
  bool whole_units_;
  std::vector<Slices> slices_;  // by unit
  Buffer packed_;               // of a unit whose slices are not single ranges
  std::vector<Buffer> slots_;
  std::shared_ptr<const GatherPlan> plan_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  int64_t gathered_ = 0;                                    // gathers done of the plan
  std::array<int64_t, kMaxLanes> acquires_{}, releases_{};  // by lane
  std::shared_ptr<Event> last_use_;                         // of what has been released
  absl::Status failure_;

  TaskThread thread_;  // last: its tasks use all of the above
};

}  // namespace holdfast
