#include "elastic/coordinator/coordinator_state.h"

#include <string>
#include <utility>

#include "checkpoint/sharded/branch_json.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxStateBytes = 1 << 28;  // a line is 60 bytes and 40 for each barrier
constexpr const char* kGenerationKey = "generation";

}  // namespace

absl::StatusOr<CoordinatorState> ReadCoordinatorState(const RunDirectory& directory) {
  const absl::StatusOr<std::string> text = ReadFile(directory.coordinator_state(), kMaxStateBytes);
  if (absl::IsNotFound(text.status())) return CoordinatorState{};
  RETURN_IF_ERROR(text.status());
  // The last whole line counts; what comes after it was cut off by a crash.
  const size_t end = text->rfind('\n');
  if (end == std::string::npos) return CoordinatorState{};
  const size_t begin = end == 0 ? std::string::npos : text->rfind('\n', end - 1);
  const std::string line = text->substr(begin == std::string::npos ? 0 : begin + 1, end - begin - 1);
  const nlohmann::json json = ParseJson(line).value_or(nullptr);
  absl::StatusOr<Branch> branch = BranchFromJson(json);
  if (!branch.ok() || !json.contains(kGenerationKey) || !json[kGenerationKey].is_number_unsigned()) {
    return absl::DataLossError(
        absl::StrCat(directory.coordinator_state(),
                     " is damaged; remove it, and the same command resumes from the run's newest checkpoint"));
  }
  return CoordinatorState{.generation = json[kGenerationKey].get<uint64_t>(), .branch = *std::move(branch)};
}

absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state) {
  return WriteFileAtomically(directory.coordinator_state(), CoordinatorStateLine(state) + "\n");
}

std::string CoordinatorStateLine(const CoordinatorState& state) {
  return nlohmann::json{{kGenerationKey, state.generation}, {kBarriersKey, ToJson(state.branch)}}.dump();
}

}  // namespace holdfast
