#include "checkpoint/sharded/branch_json.h"

namespace holdfast {

nlohmann::json ToJson(const Branch& branch) {
  auto list = nlohmann::json::array();
  for (const Barrier& barrier : branch.barriers()) {
    list.push_back({{"generation", barrier.generation}, {"step", barrier.step}});
  }
  return list;
}

Branch BranchFromJson(const nlohmann::json& object) {
  Branch branch;
  if (!object.is_object() || !object.contains(kBarriersKey)) return branch;
  for (const auto& barrier : object[kBarriersKey]) {
    if (!barrier.is_object() || !barrier.contains("generation") || !barrier["generation"].is_number_unsigned() ||
        !barrier.contains("step") || !barrier["step"].is_number_unsigned()) {
      continue;
    }
    branch.GoBack({barrier["generation"].get<uint64_t>(), barrier["step"].get<int64_t>()});
  }
  return branch;
}

}  // namespace holdfast
