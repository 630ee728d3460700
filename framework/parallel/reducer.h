#pragma once
// Sums the gradients of a step over microbatches and ranks, on a thread of its own while the model computes on. Each
// rank's contributions for what a rank sums go to that rank, which adds them in microbatch order (reduction_plan.h),
// and in the last wave hands the finished sums to the other holders. One Reducer lives as long as a world of more than
// one.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/task_thread.h"
#include "framework/comm/communicator.h"
#include "framework/nn/unit_schedule.h"
#include "framework/parallel/chunk_squares.h"
#include "framework/parallel/gradient_sum.h"
#include "framework/parallel/part_gradients.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/reduction_plan.h"
#include "framework/parallel/shard_map.h"

namespace holdfast {

/// The finished gradient of chunks of a unit.
struct GradientPiece {
  int unit = 0;
  Range chunks;
  Range elements;   // of the unit's flat vector
  int primary = 0;  // the rank that summed it
  const float* gradient = nullptr;
};

/// A unit's gradient of a wave.
struct WaveUnit {
  int wave = 0, unit = 0;
  friend bool operator==(const WaveUnit&, const WaveUnit&) = default;
};

/// Of `waves` waves, each a pass of `schedule` or more, the gradients in the order in which they are complete; waves
/// two at a time, if passes are.
std::vector<WaveUnit> GradientsOf(const UnitSchedule& schedule, int waves, bool two_at_a_time);

/// Thread-safety: Abort from any thread, everything else from one.
class Reducer {
 public:
  /// Gradients that may wait for being reduced, or be at it; computing waits when there are more. Of gradients that
  /// every microbatch sends, any units'; of sums of pieces, so many of each unit, whose memory is planned.
  static constexpr int64_t kMaxWaiting = 2;

  /// All arguments must outlive the reducer; `world` has the ranks of `placement`. `timeout`: of one exchange, for each
  /// pass that a rank makes before it. `in_parts`: units that are cut at parts are computed where they lie.
  static absl::StatusOr<std::unique_ptr<Reducer>> Create(const ShardMap& map, const Placement& placement,
                                                         const SumOrder& order, Communicator& world, Device& device,
                                                         std::chrono::milliseconds timeout, bool in_parts = false);
  ~Reducer();

  /// Starts a step: gradients are complete in the order of `gradients`, which has each unit's waves in theirs.
  absl::Status Begin(const ReductionPlan& plan, std::vector<WaveUnit> gradients);
  /// Waits until a gradient of `unit` may be computed: while more wait for being reduced than memory was planned for,
  /// computing waits.
  absl::Status WaitForRoom(int unit, const std::stop_token& stop);
  /// The pieces of this rank's range of a wave; of a unit that is computed in parts, what is served here of each
  /// microbatch of the group's. `ready`: when they will be there (null = they are).
  void Contribute(const WaveUnit& gradient, std::vector<GradientSum::Piece> pieces,
                  const std::shared_ptr<Event>& ready);
  /// Waits for the end of the step's reduction.
  absl::Status Finish();

  /// After Finish: the gradients of all chunks this rank holds, until the next Begin.
  std::vector<GradientPiece> Gradients();
  /// And the sums of squares of the chunks it sums.
  const std::map<int64_t, double>& chunk_sums() const { return chunk_sums_; }

  void Abort(const std::string& reason);

 private:
  struct Contribution {
    WaveUnit gradient;
    std::vector<GradientSum::Piece> pieces;
    std::shared_ptr<Event> ready;
  };

  Reducer(const ShardMap& map, const Placement& placement, const SumOrder& order, Communicator& world, Device& device,
          std::unique_ptr<Stream> stream, std::chrono::milliseconds timeout);
  /// Of one unit, what goes from rank to rank when sums go on to other holders.
  struct ForwardPlan {
    std::vector<int64_t> send_counts, send_starts, receive_counts, receive_starts;  // bytes, by rank
    Ranges packed;  // elements of my sum that are put one after the other first; none: it goes as it is
  };

  absl::Status PlanForwards();
  ForwardPlan PlanForward(int unit, const std::vector<Ranges>& chunks_to) const;
  absl::Status AllocatePacked();
  absl::StatusOr<const float*> Pack(int unit, const float* gradient);
  absl::Status AllocateReceived();

  void Run();
  absl::Status ReduceUnit(int wave, int unit);
  absl::Status Exchange(int wave, int unit, const Contribution& mine);
  absl::Status Accumulate(int wave, int unit, const Contribution& mine);
  bool InParts(int unit) const {
    return part_gradients_.has_value() && PartGradients::Covers(map_.layout().units()[static_cast<size_t>(unit)]);
  }
  absl::Status ReduceParts(int wave, int unit, const Contribution& mine);
  absl::Status Forward(int unit);
  absl::Status SumSquares(int unit);
  /// Contribute's, or an empty one where this rank computes nothing in the wave.
  absl::Status WaitForContribution(int wave, int unit, Contribution* mine);
  void Fail(const absl::Status& status);
  /// Of the contributions to a wave. Ranks make all their passes of it first, some slower than others, some none.
  Deadline DeadlineOf(int wave) const {
    return std::chrono::steady_clock::now() + timeout_ * std::max<int64_t>(plan_->MaxMicrobatches(wave), 1);
  }

  const ShardMap& map_;
  const Placement& placement_;
  Communicator& world_;
  Device& device_;
  std::unique_ptr<Stream> stream_;  // of the reducing thread
  std::chrono::milliseconds timeout_;
  std::vector<int64_t> mine_;  // per unit: elements that this rank sums
  GradientBuffers buffers_;
  std::vector<GradientSum> sums_;                // per unit: of these, range after range
  std::optional<PartGradients> part_gradients_;  // of units that are computed in parts
  std::vector<ForwardPlan> forwards_;
  std::vector<Buffer> mirrors_;  // per unit: what this rank holds and others sum
  std::vector<GradientPiece> mirrored_;
  int64_t mine_begin_ = 0;       // of the unit at work: my part, in what is sent
  std::vector<bool> scattered_;  // per unit: what some rank sums is more than one range
  Buffer packed_;                // a gradient or sum in the order in which it is sent
  Buffer received_;
  ChunkSquares squares_;
  std::map<int64_t, double> chunk_sums_;  // by chunk
  std::optional<ReductionPlan> plan_;
  std::vector<WaveUnit> order_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under mutex_:
  std::deque<Contribution> contributions_;  // without the one at work
  std::optional<int> at_work_;              // its unit
  absl::Status failure_;

  TaskThread thread_;  // last: its tasks use all of the above
};

}  // namespace holdfast
