#pragma once
// One field to and from YAML: type and range checks in, exact values out.

#include <string>

#include "framework/config/config_table.h"
#include "framework/config/yaml_tree.h"

namespace holdfast {

/// Sets the field from `node`. Returns what is wrong with it ("expected an integer, got 'abc'"), or "" and only then
/// changes the value.
std::string SetField(const YamlNode& node, const Field& field);

/// "key: value" lines, each after `indent`; SetField reads back the same value (doubles to the last bit).
std::string PrintField(const Field& field, const std::string& indent);

/// The value alone, of fields that take one line.
std::string PrintValue(const Field& field);

}  // namespace holdfast
