#pragma once
// Collects values and errors from the file and the overrides, then makes the Config. Used once, by load.cc.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/config/config.h"
#include "framework/config/config_table.h"
#include "framework/config/error_list.h"
#include "framework/config/load.h"
#include "framework/config/validate.h"
#include "framework/config/yaml_tree.h"

namespace holdfast {

/// Whose config it is: a run's has been accepted before.
enum class Keeper { kUser, kRun };

class ConfigReader {
 public:
  /// `families` must outlive the reader.
  ConfigReader(std::string name, std::vector<std::string> overrides, absl::Span<const FamilyPreset> families);
  ConfigReader(const ConfigReader&) = delete;  // table_ points into shape_
  ConfigReader& operator=(const ConfigReader&) = delete;

  void ReadFile(const std::string& text);
  void ReadOverrides();

  /// Applies the initial model or the family preset, then every value read in order, then the checks across keys.
  absl::StatusOr<Config> Finish(const ModelSources& models, Keeper keeper);

 private:
  struct Value {
    std::string key;  // "section.key", a valid one
    YamlNode node;
    Origin origin;
  };

  void ReadSections(const YamlNode& root);
  void ReadSection(const YamlNode& name, const YamlNode& body);
  void ReadOverride(int index);
  std::string UnknownSection(const std::string& word) const;
  std::string UnknownKey(const Section& section, const std::string& word) const;
  std::string SameKeyElsewhere(const std::string& word) const;
  const Section* FindSection(const std::string& name) const;
  std::string InitFrom() const;
  /// The values that stand where no key is given.
  Config Defaults() const;
  void ApplyValues(const std::vector<Section>& table);
  void CheckRequired();
  void CheckAgainstInitialModel(ModelConfig model);
  bool IsGiven(absl::string_view key) const;
  /// Of the first of `keys` that is given.
  Origin OriginOf(const std::vector<std::string>& keys) const;
  void Report(const std::vector<Violation>& violations);

  std::vector<std::string> FamilyNames() const;
  void ApplyFamilyPreset(ModelConfig* model) const;

  std::vector<std::string> overrides_;
  absl::Span<const FamilyPreset> families_;
  ErrorList errors_;
  Config shape_;
  std::vector<Section> table_;        // over shape_: names only
  std::vector<Value> values_;         // file, then overrides, in order
  std::map<std::string, int> lines_;  // of each section and key seen in the file
  std::set<std::string> failed_;      // keys with an error of their own
  std::optional<InitialModel> initial_;
  bool complete_ = true;
};

}  // namespace holdfast
