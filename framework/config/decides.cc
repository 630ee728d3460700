#include "framework/config/decides.h"

#include <algorithm>
#include <type_traits>

#include "framework/config/config_table.h"
#include "framework/config/load.h"
#include "xxhash.h"

namespace holdfast {
namespace {

/// `to` is of the same kind.
void Copy(const FieldValue& from, FieldValue* to) {
  std::visit(
      [to](const auto& value) {
        auto& same = std::get<std::decay_t<decltype(value)>>(*to);
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, ChoiceValue>) {
          same.set(value.get());
        } else {
          *same.value = *value.value;
        }
      },
      from);
}

}  // namespace

Decides WhatDecides(const std::string& key) {
  Config config;
  for (const Section& section : ConfigTable(&config)) {
    for (const Field& field : section.fields) {
      if (section.name + "." + field.key == key) return field.decides;
    }
  }
  return Decides::kUnsaid;
}

Config OnlyKeysThat(const std::vector<Decides>& kept, const Config& config) { return WithKeysThat(kept, config, {}); }

Config WithKeysThat(const std::vector<Decides>& taken, const Config& from, const Config& config) {
  Config source = from, made = config;
  std::vector<Section> given = ConfigTable(&source), to = ConfigTable(&made);
  for (size_t s = 0; s < given.size(); ++s) {
    for (size_t f = 0; f < given[s].fields.size(); ++f) {
      const Field& field = given[s].fields[f];
      if (std::find(taken.begin(), taken.end(), field.decides) != taken.end())
        Copy(field.value, &to[s].fields[f].value);
    }
  }
  return made;
}

uint64_t BitsDigest(const Config& config) {
  const std::string text = PrintConfig(OnlyKeysThat({Decides::kBits}, config));
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace holdfast
