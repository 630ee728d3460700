#include "elastic/coordinator/coordinator_state.h"

#include <string>

#include "checkpoint/sharded/branch_json.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxStateBytes = 1 << 20;
constexpr const char* kGenerationKey = "generation";

}  // namespace

absl::StatusOr<CoordinatorState> ReadCoordinatorState(const RunDirectory& directory) {
  const absl::StatusOr<std::string> text = ReadFile(directory.coordinator_state(), kMaxStateBytes);
  if (absl::IsNotFound(text.status())) return CoordinatorState{};
  HF_RETURN_IF_ERROR(text.status());
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(kGenerationKey) || !json[kGenerationKey].is_number_unsigned()) {
    return absl::DataLossError(absl::StrCat(directory.coordinator_state(),
                                            " is not what a coordinator writes; pass --overwrite to start anew"));
  }
  return CoordinatorState{.generation = json[kGenerationKey].get<uint64_t>(), .branch = BranchFromJson(json)};
}

absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state) {
  const nlohmann::json json{{kGenerationKey, state.generation}, {kBarriersKey, ToJson(state.branch)}};
  return WriteFileAtomically(directory.coordinator_state(), json.dump() + "\n");
}

}  // namespace holdfast
