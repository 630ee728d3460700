#pragma once
// When and where to the weights of each unit are gathered during a step, worked out ahead from the order in which the
// model uses them. All ranks work out the same plan, so they gather in the same order, ahead of the computation where
// memory allows, and a unit that is still there is not gathered again.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/nn/unit_schedule.h"

namespace holdfast {

struct GatherPlan {
  struct Gather {
    int unit = 0, slot = 0;
    // The slot is free once so many Release calls of the step have been made, by lane.
    std::array<int64_t, kMaxLanes> after_releases{};
  };

  std::vector<Gather> gathers;  // in order
  // By lane, for each Acquire call of its passes: which gather brings the unit.
  std::array<std::vector<int>, kMaxLanes> gather_of_acquire;
  std::vector<int64_t> slot_bytes;
  int64_t releases_per_pass = 0;
  int64_t acquires_per_pass = 0;
};

/// For `passes` passes of `schedule`, of which two may be under way at a time (CallsOf). Slots: as many as units are in
/// use at once, and `ahead` more.
GatherPlan PlanGathers(const UnitSchedule& schedule, int64_t passes, absl::Span<const int64_t> unit_bytes, int ahead,
                       bool two_at_a_time = false);

}  // namespace holdfast
