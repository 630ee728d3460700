// Proves that configs/KEYS.md is true of the config's table: it has every key, in order, with its type, range and
// default and what it decides, says something of each, and has what each family presets. HOLDFAST_REMAKE_GOLDEN=1
// writes all that anew and keeps the last column, which is written by hand.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/config/config_table.h"
#include "framework/config/field_text.h"
#include "models/families/families.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

std::string Code(const std::string& text) { return absl::StrCat("`", text, "`"); }

std::string Words(const std::vector<std::string>& words) {
  return absl::StrJoin(words, ", ", [](std::string* out, const std::string& word) { *out += Code(word); });
}

/// Large powers of two as 2^20.
std::string Whole(int64_t n) {
  const auto bits = static_cast<uint64_t>(n);
  return n >= 65536 && std::has_single_bit(bits) ? absl::StrCat("2^", std::countr_zero(bits)) : absl::StrCat(n);
}

std::string Number(double x) {
  return absl::StrReplaceAll(absl::StrFormat("%g", x), {{"e+0", "e"}, {"e+", "e"}, {"e-0", "e-"}});
}

struct TypeText {
  std::string operator()(const IntValue& v) const {
    return absl::StrCat("integer, ", Whole(v.min), " to ", Whole(v.max));
  }
  std::string operator()(const SeedValue&) const { return "integer, 0 to 2^64 - 1"; }
  std::string operator()(const DoubleValue& v) const {
    return absl::StrCat("number, ", Number(v.min), " to ", Number(v.max));
  }
  std::string operator()(const NumbersValue& v) const {
    return absl::StrCat("list of numbers, ", Number(v.min), " to ", Number(v.max));
  }
  std::string operator()(const BoolValue&) const { return Words({"true", "false"}); }
  std::string operator()(const ChoiceValue& v) const { return Words(v.choices); }
  std::string operator()(const StringValue& v) const {
    if (v.rule == StringRule::kFileName) return "file name";
    return v.rule == StringRule::kNotEmpty ? "string, not empty" : "string";
  }
  std::string operator()(const ListValue& v) const {
    if (v.item == "pattern with a factor") return "list of PATTERN=FACTOR";
    return absl::StrCat("list of ", v.item, "s", v.choices.empty() ? "" : ": ", Words(v.choices));
  }
};

std::string DefaultText(const Field& field) {
  if (field.required) return "required";
  const auto* list = std::get_if<ListValue>(&field.value);
  return Code(list == nullptr ? PrintValue(field) : absl::StrCat("[", absl::StrJoin(*list->value, ", "), "]"));
}

/// What most keys of the section decide, and which keys decide something else.
std::string DecidesLine(const Section& section) {
  constexpr std::array kWords = {"", "bits", "content", "layout", "host"};  // as Decides has them
  std::array<std::vector<std::string>, kWords.size()> keys;
  for (const Field& field : section.fields) keys[static_cast<size_t>(field.decides)].push_back(field.key);
  size_t most = static_cast<size_t>(section.fields[0].decides);
  for (size_t i = 0; i < keys.size(); ++i) most = keys[i].size() > keys[most].size() ? i : most;
  std::vector<std::string> others;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i != most && !keys[i].empty()) others.push_back(absl::StrCat(Words(keys[i]), ": ", kWords[i]));
  }
  const std::string rest = others.empty() ? "" : absl::StrCat(" (", absl::StrJoin(others, "; "), ")");
  return absl::StrCat("Decides: ", kWords[most], rest, ".");
}

std::string KeyOfRow(const std::string& line) {
  return absl::StartsWith(line, "| `") ? line.substr(3, line.find('`', 3) - 3) : "";
}

std::string MeaningOfRow(const std::string& line) {
  const std::vector<std::string> columns = absl::StrSplit(line, absl::MaxSplits(" | ", 3));
  return columns.size() < 4 ? "" : columns[3].substr(0, columns[3].rfind(" |"));
}

/// The keys of `model` that some family presets to another value than the first one, a column for each kind of preset.
std::vector<std::string> PresetTable() {
  std::vector<std::pair<std::vector<std::string>, std::vector<Field>>> columns;  // families and their values
  std::vector<Config> configs;
  configs.reserve(FamilyPresets().size());  // fields point into them
  const auto values = [](const std::vector<Field>& fields) {
    std::vector<std::string> texts;
    for (size_t i = 1; i < fields.size(); ++i) texts.push_back(PrintValue(fields[i]));  // 0 is the family
    return texts;
  };
  for (const FamilyPreset& family : FamilyPresets()) {
    configs.emplace_back().model = family.model;
    std::vector<Field> fields = ConfigTable(&configs.back())[1].fields;
    if (columns.empty() || values(columns.back().second) != values(fields)) columns.push_back({{}, fields});
    columns.back().first.push_back(family.name);
  }
  std::vector<std::string> lines = {"| key |", "|---|"};
  for (const auto& [families, fields] : columns) {
    absl::StrAppend(&lines[0], " ", Words(families), " |");
    absl::StrAppend(&lines[1], "---|");
  }
  for (size_t i = 1; i < columns[0].second.size(); ++i) {
    std::string line = absl::StrCat("| ", Code(columns[0].second[i].key), " |");
    std::set<std::string> different;
    for (const auto& [families, fields] : columns) {
      absl::StrAppend(&line, " ", *different.insert(PrintValue(fields[i])).first, " |");
    }
    if (different.size() > 1) lines.push_back(line);
  }
  return lines;
}

/// `page` with the rows that it ought to have, and the meanings that it has.
std::vector<std::string> Remade(const std::vector<std::string>& page) {
  std::map<std::string, std::string> meanings;
  for (const std::string& line : page) meanings[KeyOfRow(line)] = MeaningOfRow(line);
  Config config;
  std::vector<std::string> families;
  for (const FamilyPreset& family : FamilyPresets()) families.push_back(family.name);
  std::map<std::string, std::vector<std::string>> tables;  // by the title of what they stand below
  std::map<std::string, std::string> decides;
  for (const Section& section : ConfigTable(&config, families)) {
    const std::string title = absl::StrCat("## ", section.name);
    decides[title] = DecidesLine(section);
    std::vector<std::string>& rows = tables[title];
    rows = {"| key | type, values | default | meaning |", "|---|---|---|---|"};
    for (const Field& field : section.fields) {
      const std::string key = absl::StrCat(section.name, ".", field.key);
      rows.push_back(absl::StrCat("| ", Code(key), " | ", std::visit(TypeText{}, field.value), " | ",
                                  DefaultText(field), " | ", meanings[key], " |"));
    }
  }
  tables["### Families"] = PresetTable();
  std::vector<std::string> lines;
  std::string title;
  for (const std::string& line : page) {
    if (absl::StartsWith(line, "#")) title = line;
    const auto table = tables.find(title);
    if (absl::StartsWith(line, "Decides: ")) {
      lines.push_back(decides[title]);
    } else if (table == tables.end() || !absl::StartsWith(line, "|")) {
      lines.push_back(line);
    } else {
      lines.insert(lines.end(), table->second.begin(), table->second.end());
      table->second.clear();
    }
  }
  for (const auto& [section, rows] : tables) EXPECT_TRUE(rows.empty()) << "no table below '" << section << "'";
  return lines;
}

TEST(KeysPageTest, IsTrueOfTheTable) {
  const std::string path = SourceDir() + "/configs/KEYS.md";
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::vector<std::string> page = absl::StrSplit(text, '\n'), expected = Remade(page);
  if (std::getenv("HOLDFAST_REMAKE_GOLDEN") != nullptr) std::ofstream(path) << absl::StrJoin(expected, "\n");
  const std::set<std::string> have(page.begin(), page.end()), want(expected.begin(), expected.end());
  for (const std::string& line : page)
    EXPECT_TRUE(want.contains(line)) << "configs/KEYS.md has a line that is not true:\n" << line;
  for (const std::string& line : expected) {
    EXPECT_TRUE(have.contains(line)) << "configs/KEYS.md lacks the line\n" << line;
    EXPECT_TRUE(!absl::StrContains(KeyOfRow(line), '.') || !MeaningOfRow(line).empty())
        << "without a meaning: " << line;
  }
  EXPECT_TRUE(page == expected) << "configs/KEYS.md has lines in another order, or twice";
}

}  // namespace
}  // namespace holdfast
