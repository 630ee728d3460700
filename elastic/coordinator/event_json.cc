#include "elastic/coordinator/event_json.h"

#include <limits>
#include <map>

#include "framework/base/json.h"

namespace holdfast {
namespace {

constexpr const char* kTimeKey = "time";
constexpr const char* kEventKey = "event";

}  // namespace

std::string EventLine(double time, const RunEvent& event) {
  nlohmann::ordered_json line{{kTimeKey, time}, {kEventKey, EventName(event)}};
  for (const auto& [key, value] : FieldsOf(event)) {
    std::visit([&line, &key = key](const auto& plain) { line[key] = plain; }, value);
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<RecordedEvent> ReadEventLine(const std::string& line) {
  const nlohmann::json json = ParseJson(line).value_or(nullptr);
  if (!json.is_object() || !json.contains(kEventKey) || !json[kEventKey].is_string()) return std::nullopt;
  RecordedEvent recorded;
  recorded.name = json[kEventKey];
  std::map<std::string, EventFieldValue> fields;
  for (const auto& [key, value] : json.items()) {
    if (value.is_number_integer()) {
      fields[key] = value.get<int64_t>();
    } else if (value.is_number()) {
      fields[key] = value.get<double>();
    } else if (value.is_null()) {  // what JSON has no number for
      fields[key] = std::numeric_limits<double>::quiet_NaN();
    } else if (value.is_string()) {
      fields[key] = value.get<std::string>();
    }
  }
  if (json.contains(kTimeKey) && json[kTimeKey].is_number()) recorded.time = json[kTimeKey];
  recorded.event = EventOf(recorded.name, fields);
  return recorded;
}

}  // namespace holdfast
