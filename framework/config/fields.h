#pragma once
// The fields of a table (config_table.h), one call each: Int("steps", &steps, 1, kMaxSteps).

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/config/config_table.h"
#include "framework/config/enums.h"

namespace holdfast {

inline Field Required(Field field) {
  field.required = true;
  return field;
}

inline Field Int(std::string key, int64_t* value, int64_t min, int64_t max) {
  return {std::move(key), IntValue{value, min, max}};
}

inline Field Double(std::string key, double* value, double min, double max) {
  return {std::move(key), DoubleValue{value, min, max}};
}

inline Field Numbers(std::string key, std::vector<double>* value, double min, double max) {
  return {std::move(key), NumbersValue{value, min, max}};
}

inline Field Bool(std::string key, bool* value) { return {std::move(key), BoolValue{value}}; }

inline Field String(std::string key, std::string* value, StringRule rule) {
  return {std::move(key), StringValue{value, rule}};
}

inline Field Paths(std::string key, std::vector<std::string>* value) {
  return {std::move(key), ListValue{value, "path", {}}};
}

inline Field Patterns(std::string key, std::vector<std::string>* value) {
  return {std::move(key), ListValue{value, "pattern", {}}};
}

inline Field Choice(std::string key, std::string* value, std::vector<std::string> choices) {
  auto get = [value] { return *value; };
  auto set = [value](const std::string& chosen) { *value = chosen; };
  return {std::move(key), ChoiceValue{std::move(choices), std::move(get), std::move(set)}};
}

template <class E>
Field Enum(std::string key, E* value) {
  auto get = [value] { return std::string(Name(*value)); };
  auto set = [value](const std::string& chosen) {
    const auto& words = kWordsOf<E>;
    *value = static_cast<E>(std::find(words.begin(), words.end(), chosen) - words.begin());
  };
  return {std::move(key), ChoiceValue{{kWordsOf<E>.begin(), kWordsOf<E>.end()}, std::move(get), std::move(set)}};
}

}  // namespace holdfast
