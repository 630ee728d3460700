#include "elastic/coordinator/coordinator_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/sharded/branch_json.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr size_t kMaxStateBytes = 1 << 28;  // a line is 60 bytes and 40 for each barrier or contradicted worker
constexpr const char* kGenerationKey = "generation";
constexpr const char* kContradictedKey = "contradicted";

// {"n0/1": 42}; nothing if it is something else. Older builds do not write it.
std::optional<std::map<std::string, uint64_t>> ContradictedIn(const nlohmann::json& state) {
  const auto found = state.find(kContradictedKey);
  if (found == state.end()) return std::map<std::string, uint64_t>();
  const bool is_sane = found->is_object() && std::all_of(found->begin(), found->end(), [](const auto& number) {
                         return number.is_number_unsigned();
                       });
  if (!is_sane) return std::nullopt;
  return found->get<std::map<std::string, uint64_t>>();
}

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
  auto contradicted = ContradictedIn(json);
  if (!branch.ok() || !contradicted.has_value() || !json.contains(kGenerationKey) ||
      !json[kGenerationKey].is_number_unsigned()) {
    return absl::DataLossError(
        absl::StrCat(directory.coordinator_state(),
                     " is damaged; remove it, and the same command resumes from the run's newest checkpoint"));
  }
  return CoordinatorState{.generation = json[kGenerationKey].get<uint64_t>(),
                          .branch = *std::move(branch),
                          .contradicted = *std::move(contradicted)};
}

absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state) {
  return WriteFileAtomically(directory.coordinator_state(), CoordinatorStateLine(state) + "\n");
}

std::string CoordinatorStateLine(const CoordinatorState& state) {
  nlohmann::json json{{kGenerationKey, state.generation}, {kBarriersKey, ToJson(state.branch)}};
  if (!state.contradicted.empty()) json[kContradictedKey] = state.contradicted;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace holdfast
