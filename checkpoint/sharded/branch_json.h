#pragma once
// A branch as it is stored: in a fence, and by the coordinator of a run.

#include <nlohmann/json.hpp>

#include "framework/base/branch.h"

namespace holdfast {

inline constexpr char kBarriersKey[] = "barriers";

/// [{"generation": 7, "step": 20}]
nlohmann::json ToJson(const Branch& branch);
/// The barriers in `object`[kBarriersKey]; what has none, or was not written by us, gives none.
Branch BranchFromJson(const nlohmann::json& object);

}  // namespace holdfast
