#include "elastic/control/run_event.h"

#include <concepts>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace holdfast {
namespace {

template <std::integral T>
EventFieldValue ToValue(const T& value) {
  return static_cast<int64_t>(value);
}
EventFieldValue ToValue(double value) { return value; }
EventFieldValue ToValue(const std::string& value) { return value; }
EventFieldValue ToValue(Phase value) { return PhaseName(value); }
template <std::integral T>
EventFieldValue ToValue(const std::vector<T>& values) {
  return absl::StrJoin(values, ",");
}

template <std::integral T>
void Read(const EventFieldValue& value, T* out) {
  if (const auto* number = std::get_if<int64_t>(&value)) *out = static_cast<T>(*number);
}
void Read(const EventFieldValue& value, double* out) {
  if (const auto* number = std::get_if<double>(&value)) *out = *number;
  if (const auto* number = std::get_if<int64_t>(&value)) *out = static_cast<double>(*number);
}
void Read(const EventFieldValue& value, std::string* out) {
  if (const auto* text = std::get_if<std::string>(&value)) *out = *text;
}
void Read(const EventFieldValue& value, Phase* out) {
  const auto* name = std::get_if<std::string>(&value);
  for (auto phase = Phase::kStarting; name != nullptr && phase <= Phase::kIdle;
       phase = static_cast<Phase>(static_cast<int>(phase) + 1)) {
    if (*name == PhaseName(phase)) *out = phase;
  }
}
template <std::integral T>
void Read(const EventFieldValue& value, std::vector<T>* out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return;
  for (const absl::string_view part : absl::StrSplit(*text, ',', absl::SkipEmpty())) {
    T number = 0;
    if (absl::SimpleAtoi(part, &number)) out->push_back(number);
  }
}

class FieldWriter {
 public:
  template <class T>
  FieldWriter& operator()(const char* key, const T& value) {
    fields.emplace_back(key, ToValue(value));
    return *this;
  }
  std::vector<std::pair<const char*, EventFieldValue>> fields;
};

class FieldReader {
 public:
  explicit FieldReader(const std::map<std::string, EventFieldValue>& fields) : fields_(fields) {}
  template <class T>
  FieldReader& operator()(const char* key, T& value) {
    if (const auto found = fields_.find(key); found != fields_.end()) Read(found->second, &value);
    return *this;
  }

 private:
  const std::map<std::string, EventFieldValue>& fields_;
};

template <size_t kind = 0>
std::optional<RunEvent> EventOfKind(std::string_view name, const std::map<std::string, EventFieldValue>& fields) {
  if constexpr (kind == std::variant_size_v<RunEvent>) {
    return std::nullopt;
  } else {
    using Event = std::variant_alternative_t<kind, RunEvent>;
    if (name != Event::kName) return EventOfKind<kind + 1>(name, fields);
    Event event;
    FieldReader reader(fields);
    Event::Fields(event, reader);
    return event;
  }
}

}  // namespace

const char* EventName(const RunEvent& event) {
  return std::visit([](const auto& e) { return std::decay_t<decltype(e)>::kName; }, event);
}

std::vector<std::pair<const char*, EventFieldValue>> FieldsOf(const RunEvent& event) {
  FieldWriter writer;
  std::visit([&](const auto& e) { std::decay_t<decltype(e)>::Fields(e, writer); }, event);
  return std::move(writer.fields);
}

std::optional<RunEvent> EventOf(std::string_view name, const std::map<std::string, EventFieldValue>& fields) {
  return EventOfKind(name, fields);
}

}  // namespace holdfast
