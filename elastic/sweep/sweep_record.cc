#include "elastic/sweep/sweep_record.h"

#include <bit>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kMaxRecordBytes = size_t{1} << 28;

std::string Hex(uint64_t digest) { return absl::StrFormat("%016x", digest); }

absl::StatusOr<RecordedTrial> FromLine(const std::string& line) {
  const nlohmann::json json = ParseJson(line).value_or(nullptr);
  const auto is = [&json](const char* key, bool (nlohmann::json::*check)() const noexcept) {
    return json.contains(key) && (json[key].*check)();
  };
  uint64_t digest = 0, bits = 0;
  const bool whole = json.is_object() && is("trial", &nlohmann::json::is_number_unsigned) &&
                     is("point", &nlohmann::json::is_string) && is("digest", &nlohmann::json::is_string) &&
                     is("steps_planned", &nlohmann::json::is_number_integer) &&
                     is("steps", &nlohmann::json::is_number_integer) && is("reused", &nlohmann::json::is_boolean) &&
                     is("measured", &nlohmann::json::is_boolean) && is("value_bits", &nlohmann::json::is_string) &&
                     is("seconds", &nlohmann::json::is_number) && is("reason", &nlohmann::json::is_string);
  if (!whole || !absl::SimpleHexAtoi(json["digest"].get<std::string>(), &digest) ||
      !absl::SimpleHexAtoi(json["value_bits"].get<std::string>(), &bits)) {
    return absl::DataLossError("no line of a sweep's results");
  }
  return RecordedTrial{.trial = json["trial"],
                       .point = json["point"],
                       .digest = digest,
                       .steps_planned = json["steps_planned"],
                       .reused = json["reused"],
                       .result = {.measured = json["measured"],
                                  .value = std::bit_cast<double>(bits),
                                  .steps = json["steps"],
                                  .seconds = json["seconds"],
                                  .reason = json["reason"]}};
}

}  // namespace

std::string RecordLine(const RecordedTrial& recorded) {
  const TrialResult& result = recorded.result;
  nlohmann::ordered_json json = {
      {"trial", recorded.trial},        {"point", recorded.point},
      {"digest", Hex(recorded.digest)}, {"steps_planned", recorded.steps_planned},
      {"steps", result.steps},          {"measured", result.measured},
      {"value", result.value},          {"value_bits", Hex(std::bit_cast<uint64_t>(result.value))},
      {"seconds", result.seconds},      {"reused", recorded.reused},
      {"reason", result.reason}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<std::map<int64_t, RecordedTrial>> ReadRecord(const std::string& path) {
  std::map<int64_t, RecordedTrial> trials;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return trials;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxRecordBytes));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // empty, or torn by a crash
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StatusOr<RecordedTrial> recorded = FromLine(lines[i]);
    if (!recorded.ok()) return Annotate(recorded.status(), absl::StrCat(path, ":", i + 1));
    const int64_t trial = recorded->trial;
    trials.emplace(trial, *std::move(recorded));
  }
  return trials;
}

absl::Status CheckRecorded(const RecordedTrial& recorded, const PlannedTrial& planned) {
  const uint64_t digest = planned.setup.has_value() ? planned.setup->digest : 0;
  const int64_t steps = planned.setup.has_value() ? planned.setup->steps() : 0;
  if (recorded.point == search::PointText(planned.suggestion.point) && recorded.digest == digest &&
      recorded.steps_planned == steps) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("trial ", planned.number, " is recorded as {", recorded.point, "}, ",
                   Counted(recorded.steps_planned, "step"), ", run ", Hex(recorded.digest), ", and would be {",
                   search::PointText(planned.suggestion.point), "}, ", Counted(steps, "step"), ", run ", Hex(digest),
                   " now: the base config, the data or the program has changed since. Undo that, or begin another "
                   "sweep, in another --sweep-dir"));
}

RecordedTrial RecordOf(const PlannedTrial& trial, const TrialResult& result, bool reused) {
  return {.trial = trial.number,
          .point = search::PointText(trial.suggestion.point),
          .digest = trial.setup.has_value() ? trial.setup->digest : 0,
          .steps_planned = trial.setup.has_value() ? trial.setup->steps() : 0,
          .reused = reused,
          .result = result};
}

}  // namespace holdfast
