#include "framework/parallel/gather_plan.h"

#include <algorithm>

namespace holdfast {
namespace {

struct Slot {
  int unit = -1;
  int users = 0;
  int64_t free_after = 0;  // releases
  int gather = -1;         // that filled it
};

int MostUnitsAtOnce(const UnitSchedule& schedule) {
  std::vector<int> users;
  int units = 0, most = 0;
  for (const StoreCall& call : schedule) {
    users.resize(std::max(users.size(), static_cast<size_t>(call.unit) + 1));
    int& count = users[static_cast<size_t>(call.unit)];
    if (call.kind == StoreCall::Kind::kAcquire && count++ == 0) most = std::max(most, ++units);
    if (call.kind == StoreCall::Kind::kRelease && --count == 0) --units;
  }
  return most;
}

}  // namespace

GatherPlan PlanGathers(const UnitSchedule& schedule, int64_t passes, absl::Span<const int64_t> unit_bytes, int ahead) {
  GatherPlan plan;
  const auto num_slots = std::min(unit_bytes.size(), static_cast<size_t>(MostUnitsAtOnce(schedule) + ahead));
  std::vector<Slot> slots(num_slots);
  plan.slot_bytes.resize(num_slots);
  int64_t releases = 0;
  const auto slot_of = [&](int unit) {
    return std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.unit == unit; });
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (const StoreCall& call : schedule) {
      if (call.kind == StoreCall::Kind::kRelease) {
        Slot& slot = *slot_of(call.unit);
        --slot.users;
        slot.free_after = ++releases;
      }
      if (call.kind != StoreCall::Kind::kAcquire) continue;
      auto slot = slot_of(call.unit);
      if (slot == slots.end()) {  // into the slot that has been free for longest
        slot = std::min_element(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
          return std::pair(a.users > 0, a.free_after) < std::pair(b.users > 0, b.free_after);
        });
        const auto index = static_cast<int>(slot - slots.begin());
        plan.gathers.push_back({call.unit, index, slot->free_after});
        int64_t& bytes = plan.slot_bytes[static_cast<size_t>(index)];
        bytes = std::max(bytes, unit_bytes[static_cast<size_t>(call.unit)]);
        *slot = {.unit = call.unit, .gather = static_cast<int>(plan.gathers.size()) - 1};
      }
      ++slot->users;
      plan.gather_of_acquire.push_back(slot->gather);
    }
  }
  if (passes > 0) {
    plan.releases_per_pass = releases / passes;
    plan.acquires_per_pass = static_cast<int64_t>(plan.gather_of_acquire.size()) / passes;
  }
  return plan;
}

}  // namespace holdfast
