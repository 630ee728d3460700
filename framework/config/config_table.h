#pragma once
// The one definition of every config key. A table is made over a Config and points into it; parsing, range checks,
// suggestions and printing all walk it, so a key added here is added everywhere.
//
//   Config config;
//   for (Section& section : ConfigTable(&config))
//     for (Field& field : section.fields) { section.name, field.key, field.value ... }

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/config/decides.h"

namespace holdfast {

inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

struct IntValue {
  int64_t* value;
  int64_t min;
  int64_t max;
};

struct SeedValue {
  uint64_t* value;
};

/// Finite, both bounds permitted.
struct DoubleValue {
  double* value;
  double min;
  double max;
};

/// A list of such numbers.
struct NumbersValue {
  std::vector<double>* value;
  double min;
  double max;
};

struct BoolValue {
  bool* value;
};

enum class StringRule { kAny, kNotEmpty, kFileName };

struct StringValue {
  std::string* value;
  StringRule rule;
};

/// A string that must be one of `choices`.
struct ChoiceValue {
  std::vector<std::string> choices;
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;  // one of the choices, or what get() has said
};

struct ListValue {
  std::vector<std::string>* value;
  std::string item;                  // "path"
  std::vector<std::string> choices;  // each must be one of them; empty = any
};

using FieldValue =
    std::variant<IntValue, SeedValue, DoubleValue, NumbersValue, BoolValue, StringValue, ChoiceValue, ListValue>;

struct Field {
  std::string key;
  FieldValue value;
  bool required = false;
  Decides decides = Decides::kUnsaid;
};

struct Section {
  std::string name;
  std::vector<Field> fields;

  std::vector<std::string> Keys() const;
};

/// Valid as long as `config` is. `families`: what may be read into model.family.
std::vector<Section> ConfigTable(Config* config, std::vector<std::string> families = {});

}  // namespace holdfast
