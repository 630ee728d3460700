#include "framework/parallel/gather_plan.h"

#include <algorithm>
#include <array>
#include <utility>

namespace holdfast {
namespace {

struct Slot {
  int unit = -1;
  int users = 0;
  int64_t free_after = 0;                          // releases
  std::array<int64_t, kMaxLanes> free_after_of{};  // by lane
  int gather = -1;                                 // that filled it
};

int MostUnitsAtOnce(const std::vector<PassCall>& calls) {
  std::vector<int> users;
  int units = 0, most = 0;
  for (const auto& [pass, call] : calls) {
    users.resize(std::max(users.size(), static_cast<size_t>(call.unit) + 1));
    int& count = users[static_cast<size_t>(call.unit)];
    if (call.kind == StoreCall::Kind::kAcquire && count++ == 0) most = std::max(most, ++units);
    if (call.kind == StoreCall::Kind::kRelease && --count == 0) --units;
  }
  return most;
}

}  // namespace

GatherPlan PlanGathers(const UnitSchedule& schedule, int64_t passes, absl::Span<const int64_t> unit_bytes, int ahead,
                       bool two_at_a_time) {
  GatherPlan plan;
  const int at_once = MostUnitsAtOnce(CallsOf(schedule, two_at_a_time ? kMaxLanes : 1, two_at_a_time));
  const auto num_slots = std::min(unit_bytes.size(), static_cast<size_t>(at_once + ahead));
  std::vector<Slot> slots(num_slots);
  plan.slot_bytes.resize(num_slots);
  int64_t releases = 0, acquires = 0;
  std::array<int64_t, kMaxLanes> releases_of{};
  const auto slot_of = [&](int unit) {
    return std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.unit == unit; });
  };
  for (const auto& [pass, call] : CallsOf(schedule, passes, two_at_a_time)) {
    const auto lane = static_cast<size_t>(LaneOf(pass, two_at_a_time));
    if (call.kind == StoreCall::Kind::kRelease) {
      Slot& slot = *slot_of(call.unit);
      --slot.users;
      ++releases_of[lane];
      slot.free_after = ++releases;
      slot.free_after_of = releases_of;
    }
    if (call.kind != StoreCall::Kind::kAcquire) continue;
    auto slot = slot_of(call.unit);
    if (slot == slots.end()) {  // into the slot that has been free for longest
      slot = std::min_element(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
        return std::pair(a.users > 0, a.free_after) < std::pair(b.users > 0, b.free_after);
      });
      const auto index = static_cast<int>(slot - slots.begin());
      plan.gathers.push_back({call.unit, index, slot->free_after_of});
      int64_t& bytes = plan.slot_bytes[static_cast<size_t>(index)];
      bytes = std::max(bytes, unit_bytes[static_cast<size_t>(call.unit)]);
      *slot = {.unit = call.unit, .gather = static_cast<int>(plan.gathers.size()) - 1};
    }
    ++slot->users;
    ++acquires;
    plan.gather_of_acquire[lane].push_back(slot->gather);
  }
  if (passes > 0) {
    plan.releases_per_pass = releases / passes;
    plan.acquires_per_pass = acquires / passes;
  }
  return plan;
}

}  // namespace holdfast
