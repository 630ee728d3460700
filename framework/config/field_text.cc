#include "framework/config/field_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/config/printable.h"
#include "framework/config/suggest.h"

namespace holdfast {
namespace {

/// The value as the user wrote it, short and printable.
std::string Shown(const YamlNode& node) {
  constexpr size_t kLongest = 60;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string text = Printable(node.text, kLongest);
  return node.quoted ? absl::StrCat("the string \"", text, "\"") : absl::StrCat("'", text, "'");
}

std::string Expected(const std::string& what, const YamlNode& node) {
  return absl::StrCat("expected ", what, ", got ", Shown(node));
}

bool IsPlain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

/// An optional sign and digits without leading zeros (YAML 1.1 reads 010 as 8, 1.2 as 10).
bool IsDecimalInteger(const std::string& text) {
  const std::string digits = text.substr(!text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0);
  return !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
         (digits == "0" || digits[0] != '0');
}

/// "10ms", "4k", "16 GiB": a number with a unit, which belongs into the key.
std::string UnitHint(const YamlNode& node) {
  const std::string& text = node.text;
  if (!IsPlain(node) || text.empty() || !absl::ascii_isdigit(text[0]) || !absl::ascii_isalpha(text.back())) return "";
  return " (write the plain number; a unit is part of the key's name)";
}

template <class Integer>
std::string SetInteger(const YamlNode& node, Integer* value, Integer min, Integer max) {
  if (!IsPlain(node) || !IsDecimalInteger(node.text)) return Expected("an integer", node) + UnitHint(node);
  Integer parsed = 0;
  if (!absl::SimpleAtoi(node.text, &parsed) || parsed < min || parsed > max) {
    return absl::StrCat("must be between ", min, " and ", max, ", got ", Shown(node));
  }
  *value = parsed;
  return "";
}

/// The fewest digits that read back as the same double; "3e-4" rather than seventeen digits, "500000" not "5e+05".
std::string PrintDouble(double value) {
  for (const int digits : {6, 15, 16}) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string SetValue(const YamlNode& node, const IntValue& field) {
  return SetInteger(node, field.value, field.min, field.max);
}

std::string SetValue(const YamlNode& node, const SeedValue& field) {
  return SetInteger(node, field.value, uint64_t{0}, std::numeric_limits<uint64_t>::max());
}

std::string SetValue(const YamlNode& node, const DoubleValue& field) {
  double parsed = 0;
  const bool number = IsPlain(node) && absl::SimpleAtod(node.text, &parsed) &&
                      node.text.find_first_of("xX") == std::string::npos;  // hexadecimal
  if (!number) return Expected("a number", node) + UnitHint(node);
  if (!std::isfinite(parsed)) return Expected("a finite number", node);
  if (parsed < field.min || parsed > field.max) {
    return absl::StrCat("must be between ", PrintDouble(field.min), " and ", PrintDouble(field.max), ", got ",
                        Shown(node));
  }
  *field.value = parsed == 0 ? 0.0 : parsed;  // no negative zero
  return "";
}

std::string SetValue(const YamlNode& node, const NumbersValue& field) {
  if (node.kind != YamlNode::Kind::kList) return Expected("a list of numbers", node);
  std::vector<double> numbers;
  for (const YamlNode& item : node.items) {
    double number = 0;
    if (std::string problem = SetValue(item, DoubleValue{&number, field.min, field.max}); !problem.empty()) {
      return problem + " in the list";
    }
    numbers.push_back(number);
  }
  *field.value = std::move(numbers);
  return "";
}

std::string SetValue(const YamlNode& node, const BoolValue& field) {
  const bool yes = IsPlain(node) && (node.text == "true" || node.text == "True" || node.text == "TRUE");
  const bool no = IsPlain(node) && (node.text == "false" || node.text == "False" || node.text == "FALSE");
  if (!yes && !no) return Expected("true or false", node);
  *field.value = yes;
  return "";
}

/// What is wrong if `node` is none of `choices`.
std::string CheckChoice(const YamlNode& node, const std::vector<std::string>& choices) {
  const std::string expected = "one of " + absl::StrJoin(choices, ", ");
  if (node.kind != YamlNode::Kind::kScalar) return Expected(expected, node);
  if (std::find(choices.begin(), choices.end(), node.text) != choices.end()) return "";
  const bool has_cuda = std::find(choices.begin(), choices.end(), "cuda") != choices.end();
  // By its letters it is nearest to cpu.
  const bool means_cuda = has_cuda && absl::EqualsIgnoreCase(node.text, "gpu");
  const std::string nearest = means_cuda ? "cuda" : Nearest(node.text, choices);
  return absl::StrCat(Expected(expected, node),
                      nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)"));
}

std::string SetValue(const YamlNode& node, const ChoiceValue& field) {
  std::string problem = CheckChoice(node, field.choices);
  if (problem.empty()) field.set(node.text);
  return problem;
}

bool HasControlCharacter(const std::string& text) { return std::any_of(text.begin(), text.end(), absl::ascii_iscntrl); }

/// Safe as the name of a directory.
bool IsFileName(const std::string& text) {
  constexpr size_t kLongest = 128;
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; };
  return !text.empty() && text.size() <= kLongest && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), allowed);
}

std::string SetValue(const YamlNode& node, const StringValue& field) {
  if (node.kind != YamlNode::Kind::kScalar) return Expected("a string", node);
  if (HasControlCharacter(node.text)) return Expected("a string without control characters", node);
  if (field.rule == StringRule::kNotEmpty && node.text.empty()) return "must not be empty";
  if (field.rule == StringRule::kFileName && !IsFileName(node.text)) {
    return Expected("1 to 128 letters, digits, '.', '_', '-', the first a letter, digit or '_'", node);
  }
  *field.value = node.text;
  return "";
}

std::string SetValue(const YamlNode& node, const ListValue& field) {
  const std::string expected = absl::StrCat("a ", field.item, " or a list of ", field.item, "s");
  if (node.kind != YamlNode::Kind::kList && node.kind != YamlNode::Kind::kScalar) return Expected(expected, node);
  const std::vector<YamlNode> one = {node};
  std::vector<std::string> items;
  for (const YamlNode& item : node.kind == YamlNode::Kind::kList ? node.items : one) {
    if (item.kind != YamlNode::Kind::kScalar) return Expected(expected, item) + " in the list";
    if (item.text.empty()) return absl::StrCat("a ", field.item, " must not be empty");
    if (HasControlCharacter(item.text)) {
      return Expected(absl::StrCat("a ", field.item, " without control characters"), item);
    }
    if (!field.choices.empty()) {
      if (std::string problem = CheckChoice(item, field.choices); !problem.empty()) return problem;
    }
    items.push_back(item.text);
  }
  *field.value = std::move(items);
  return "";
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string PrintValue(const IntValue& field, const std::string& /*indent*/) { return absl::StrCat(*field.value); }
std::string PrintValue(const SeedValue& field, const std::string& /*indent*/) { return absl::StrCat(*field.value); }
std::string PrintValue(const DoubleValue& field, const std::string& /*indent*/) { return PrintDouble(*field.value); }
std::string PrintValue(const NumbersValue& field, const std::string& /*indent*/) {
  const auto print = [](std::string* out, double number) { *out += PrintDouble(number); };
  return absl::StrCat("[", absl::StrJoin(*field.value, ", ", print), "]");
}
std::string PrintValue(const BoolValue& field, const std::string& /*indent*/) {
  return *field.value ? "true" : "false";
}
std::string PrintValue(const ChoiceValue& field, const std::string& /*indent*/) { return field.get(); }
std::string PrintValue(const StringValue& field, const std::string& /*indent*/) { return Quoted(*field.value); }
std::string PrintValue(const ListValue& field, const std::string& indent) {
  if (field.value->empty()) return "[]";
  std::string lines;
  for (const std::string& item : *field.value) {
    absl::StrAppend(&lines, "\n", indent, "  - ", Quoted(item));
  }
  return lines;
}

}  // namespace

std::string SetField(const YamlNode& node, const Field& field) {
  if (field.required && node.kind == YamlNode::Kind::kList && node.items.empty()) return "must name at least one file";
  return std::visit([&](const auto& value) { return SetValue(node, value); }, field.value);
}

std::string PrintValue(const Field& field) {
  return std::visit([&](const auto& typed) { return PrintValue(typed, ""); }, field.value);
}

std::string PrintField(const Field& field, const std::string& indent) {
  const std::string value = std::visit([&](const auto& typed) { return PrintValue(typed, indent); }, field.value);
  return absl::StrCat(indent, field.key, value.starts_with('\n') ? ":" : ": ", value, "\n");
}

}  // namespace holdfast
