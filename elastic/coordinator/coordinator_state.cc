#include "elastic/coordinator/coordinator_state.h"

#include <algorithm>
#include <chrono>
#include <limits>
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

// A line is 60 bytes, 40 for each barrier or contradicted worker, and 100 for each of WorkerHistory::kMaxPast names.
constexpr size_t kMaxStateBytes = 1 << 28;
constexpr const char* kGenerationKey = "generation";
constexpr const char* kContradictedKey = "contradicted";
constexpr const char *kContradictionsKey = "contradictions", *kProcessKey = "process", *kKeptOutKey = "kept_out",
                     *kTimesKey = "times";

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

bool IsTime(const nlohmann::json& seconds) {
  const auto* number = seconds.get_ptr<const uint64_t*>();
  return number != nullptr && *number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

// {"n0/1": {"process": 42, "kept_out": false, "times": [1764428000]}}; nothing if it is something else, as above.
std::optional<std::map<std::string, Contradictions>> ContradictionsIn(const nlohmann::json& state) {
  std::map<std::string, Contradictions> read;
  const auto found = state.find(kContradictionsKey);
  if (found == state.end()) return read;
  if (!found->is_object()) return std::nullopt;
  for (const auto& [name, past] : found->items()) {
    const nlohmann::json fields = past.is_object() ? past : nlohmann::json::object();
    const nlohmann::json process = fields.value(kProcessKey, nlohmann::json());
    const nlohmann::json kept_out = fields.value(kKeptOutKey, nlohmann::json());
    const nlohmann::json times = fields.value(kTimesKey, nlohmann::json());
    if (!process.is_number_unsigned() || !kept_out.is_boolean() || !times.is_array() || times.empty() ||
        !std::all_of(times.begin(), times.end(), IsTime)) {
      return std::nullopt;
    }
    Contradictions& contradictions = read[name];
    contradictions.process = process.get<uint64_t>();
    contradictions.kept_out = kept_out.get<bool>();
    for (const auto& time : times) contradictions.times.emplace_back(time.get<int64_t>());
  }
  return read;
}

nlohmann::json ToJson(const Contradictions& past) {
  auto times = nlohmann::json::array();
  for (const std::chrono::seconds time : past.times) times.push_back(static_cast<uint64_t>(time.count()));
  return {{kProcessKey, past.process}, {kKeptOutKey, past.kept_out}, {kTimesKey, times}};
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
  auto contradictions = ContradictionsIn(json);
  if (!branch.ok() || !contradicted.has_value() || !contradictions.has_value() || !json.contains(kGenerationKey) ||
      !json[kGenerationKey].is_number_unsigned()) {
    return absl::DataLossError(
        absl::StrCat(directory.coordinator_state(),
                     " is damaged; remove it, and the same command resumes from the run's newest checkpoint"));
  }
  return CoordinatorState{.generation = json[kGenerationKey].get<uint64_t>(),
                          .branch = *std::move(branch),
                          .contradicted = *std::move(contradicted),
                          .contradictions = *std::move(contradictions)};
}

absl::Status WriteCoordinatorState(const RunDirectory& directory, const CoordinatorState& state) {
  return WriteFileAtomically(directory.coordinator_state(), CoordinatorStateLine(state) + "\n");
}

std::string CoordinatorStateLine(const CoordinatorState& state) {
  nlohmann::json json{{kGenerationKey, state.generation}, {kBarriersKey, ToJson(state.branch)}};
  if (!state.contradicted.empty()) json[kContradictedKey] = state.contradicted;
  for (const auto& [name, past] : state.contradictions) json[kContradictionsKey][name] = ToJson(past);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace holdfast
