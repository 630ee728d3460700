#pragma once
// In which order a pass of a model uses its units. It is the same for every microbatch, so whoever moves weights and
// gradients can work ahead of the model, and can take part in the moves without computing.

#include <cstdint>
#include <vector>

namespace holdfast {

/// One call of a UnitStore, or a pause (PartStore::Pause), whose unit is 0.
struct StoreCall {
  enum class Kind : uint8_t { kAcquire, kRelease, kBeginGradients, kEndGradients, kPause };
  Kind kind = Kind::kAcquire;
  int unit = 0;
  friend bool operator==(const StoreCall&, const StoreCall&) = default;
};

using UnitSchedule = std::vector<StoreCall>;

/// Passes of a step that are under way at the same time, at most.
inline constexpr int kMaxLanes = 2;

/// A call of one of several passes.
struct PassCall {
  int64_t pass = 0;
  StoreCall call;
};

/// The calls of `passes` passes of `schedule`, in the order in which a rank makes them all. `two_at_a_time`: passes 0
/// and 1 take turns, then 2 and 3, and so on, of which the first begins, and each goes on until its next pause
/// (PassTurns); a last one without a partner goes on alone. Without pauses, which are no calls of a store.
std::vector<PassCall> CallsOf(const UnitSchedule& schedule, int64_t passes, bool two_at_a_time);

/// Of a pass: which of those that are under way with it.
inline int LaneOf(int64_t pass, bool two_at_a_time) { return two_at_a_time ? static_cast<int>(pass % kMaxLanes) : 0; }

}  // namespace holdfast
