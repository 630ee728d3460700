#include "framework/nn/unit_schedule.h"

#include <array>
#include <cstddef>

namespace holdfast {

std::vector<PassCall> CallsOf(const UnitSchedule& schedule, int64_t passes, bool two_at_a_time) {
  std::vector<PassCall> calls;
  calls.reserve(static_cast<size_t>(passes) * schedule.size());
  for (int64_t first = 0; first < passes;) {
    const size_t together = two_at_a_time && first + 1 < passes ? kMaxLanes : 1;
    std::array<size_t, kMaxLanes> next{};
    const auto ended = [&](size_t lane) { return next[lane] == schedule.size(); };
    for (size_t lane = 0; !ended(0) || !ended(together - 1); lane = (lane + 1) % together) {
      while (!ended(lane)) {
        const StoreCall& call = schedule[next[lane]++];
        if (call.kind == StoreCall::Kind::kPause) break;
        calls.push_back({first + static_cast<int64_t>(lane), call});
      }
    }
    first += static_cast<int64_t>(together);
  }
  return calls;
}

}  // namespace holdfast
