#include "checkpoint/sharded/branch_json.h"

#include <limits>

namespace holdfast {
namespace {

/// Null if it is no whole number that a barrier can have.
const uint64_t* NumberIn(const nlohmann::json& barrier, const char* key) {
  const auto found = barrier.find(key);
  return found == barrier.end() ? nullptr : found->get_ptr<const uint64_t*>();
}

}  // namespace

nlohmann::json ToJson(const Branch& branch) {
  auto list = nlohmann::json::array();
  for (const Barrier& barrier : branch.barriers()) {
    list.push_back({{"generation", barrier.generation}, {"step", barrier.step}});
  }
  return list;
}

absl::StatusOr<Branch> BranchFromJson(const nlohmann::json& object) {
  constexpr auto kMaxStep = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  Branch branch;
  if (!object.is_object()) return absl::DataLossError("no JSON object");
  const auto barriers = object.find(kBarriersKey);
  if (barriers == object.end()) return branch;
  if (!barriers->is_array()) return absl::DataLossError("its barriers are no list");
  for (const auto& barrier : *barriers) {
    const uint64_t *generation = NumberIn(barrier, "generation"), *step = NumberIn(barrier, "step");
    if (generation == nullptr || step == nullptr || *step > kMaxStep) {
      return absl::DataLossError("one of its barriers has no generation or no step");
    }
    branch.GoBack({*generation, static_cast<int64_t>(*step)});
  }
  return branch;
}

}  // namespace holdfast
