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

Config OnlyKeysThat(const std::vector<Decides>& kept, const Config& config) {
  Config from = config, to;
  std::vector<Section> given = ConfigTable(&from), made = ConfigTable(&to);
  for (size_t s = 0; s < given.size(); ++s) {
    for (size_t f = 0; f < given[s].fields.size(); ++f) {
      const Field& field = given[s].fields[f];
      if (std::find(kept.begin(), kept.end(), field.decides) != kept.end()) Copy(field.value, &made[s].fields[f].value);
    }
  }
  return to;
}

uint64_t BitsDigest(const Config& config) {
  const std::string text = PrintConfig(OnlyKeysThat({Decides::kBits}, config));
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace holdfast
