#pragma once
// A branch as it is stored: in a fence, and by the coordinator of a run.

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "framework/base/branch.h"

namespace holdfast {

inline constexpr char kBarriersKey[] = "barriers";

/// [{"generation": 7, "step": 20}]
nlohmann::json ToJson(const Branch& branch);
/// The barriers in `object`[kBarriersKey]; none where the key is missing, as it was before there were any. DataLoss if
/// they cannot be read: without them what a run has given up would count again.
absl::StatusOr<Branch> BranchFromJson(const nlohmann::json& object);

}  // namespace holdfast
