#include "framework/config/config_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/config/field_text.h"
#include "framework/config/suggest.h"
#include "framework/config/unused_keys.h"
#include "framework/config/validate.h"

namespace holdfast {
namespace {

constexpr char kModel[] = "model", kFamilyKey[] = "model.family", kInitFromKey[] = "train.init_from",
               kStepsKey[] = "train.steps", kEpochsKey[] = "train.epochs";

std::string DidYouMean(const std::string& word) {
  return word.empty() ? "" : absl::StrCat(" (did you mean '", word, "'?)");
}

std::string Join(const std::string& section, const std::string& key) { return absl::StrCat(section, ".", key); }

bool HasKey(const Section& section, const std::string& key) {
  return std::any_of(section.fields.begin(), section.fields.end(), [&](const Field& f) { return f.key == key; });
}

/// Splits "section.key" at its first dot; the key is empty without one.
std::pair<std::string, std::string> SplitKey(const std::string& text) {
  const size_t dot = text.find('.');
  if (dot == std::string::npos) return {text, ""};
  return {text.substr(0, dot), text.substr(dot + 1)};
}

/// A part of `text` is not in the value that was read of it.
bool HasComment(const YamlNode& value, const std::string& text) {
  if (value.kind == YamlNode::Kind::kNull) return absl::StrContains(text, '#');
  const bool plain = value.kind == YamlNode::Kind::kScalar && !value.quoted;
  return plain && (absl::StrContains(text, " #") || absl::StrContains(text, "\t#"));
}

}  // namespace

ConfigReader::ConfigReader(std::string name, std::vector<std::string> overrides,
                           absl::Span<const FamilyPreset> families)
    : overrides_(std::move(overrides)),
      families_(families),
      errors_(std::move(name), overrides_),
      table_(ConfigTable(&shape_, FamilyNames())) {}

std::vector<std::string> ConfigReader::FamilyNames() const {
  std::vector<std::string> names;
  for (const FamilyPreset& family : families_) names.push_back(family.name);
  return names;
}

void ConfigReader::ApplyFamilyPreset(ModelConfig* model) const {
  for (const FamilyPreset& family : families_) {
    if (family.name != model->family) continue;
    model->position = family.model.position;
    model->norm = family.model.norm;
    model->norm_position = family.model.norm_position;
    model->activation = family.model.activation;
    model->bias = family.model.bias;
    model->attention_bias = family.model.attention_bias;
    model->qkv_bias = family.model.qkv_bias;
    model->qk_norm = family.model.qk_norm;
    model->qk_norm_joint = family.model.qk_norm_joint;
    model->attention_sinks = family.model.attention_sinks;
    model->rope_scaling_layers = family.model.rope_scaling_layers;
    model->tie_embeddings = family.model.tie_embeddings;
    model->scale_embeddings = family.model.scale_embeddings;
    model->num_experts = family.model.num_experts;
    model->experts_per_token = family.model.experts_per_token;
    model->expert_bias = family.model.expert_bias;
    model->swiglu_limit = family.model.swiglu_limit;
    model->router_score = family.model.router_score;
    model->router_normalize = family.model.router_normalize;
    model->router_bias = family.model.router_bias;
    model->shared_expert_gate = family.model.shared_expert_gate;
  }
}

void ConfigReader::ReadFile(const std::string& text) {
  const YamlTree tree = ParseYaml(text);
  for (const YamlProblem& problem : tree.problems) {
    errors_.Add({.line = problem.line}, "", problem.message);
  }
  complete_ = tree.complete;
  if (tree.root.kind == YamlNode::Kind::kMap) {
    ReadSections(tree.root);
  } else if (tree.root.kind != YamlNode::Kind::kNull) {
    errors_.Add({.line = tree.root.line}, "",
                "expected sections (a map of maps), as in \"model:\\n  vocab_size: 256\"");
    complete_ = false;
  }
}

void ConfigReader::ReadSections(const YamlNode& root) {
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const YamlNode &name = root.keys[i], &body = root.items[i];
    if (name.kind != YamlNode::Kind::kScalar) {
      errors_.Add({.line = name.line}, "", "expected the name of a section");
      continue;
    }
    const auto [before, is_new] = lines_.try_emplace(name.text, name.line);
    if (!is_new) {
      errors_.Add({.line = name.line}, name.text, absl::StrCat("section given twice, first on line ", before->second));
    }
    ReadSection(name, body);
  }
}

void ConfigReader::ReadSection(const YamlNode& name, const YamlNode& body) {
  const Section* section = FindSection(name.text);
  if (section == nullptr) {
    errors_.Add({.line = name.line}, name.text, UnknownSection(name.text));
    return;
  }
  if (body.kind == YamlNode::Kind::kNull) return;  // all its keys commented out
  if (body.kind != YamlNode::Kind::kMap) {
    errors_.Add({.line = name.line}, name.text, "expected a map of keys below the section");
    return;
  }
  for (size_t i = 0; i < body.keys.size(); ++i) {
    const YamlNode &key = body.keys[i], &value = body.items[i];
    const std::string full = Join(name.text, key.text);
    const Origin origin{.line = key.line};
    if (key.kind != YamlNode::Kind::kScalar) {
      errors_.Add(origin, name.text, "expected the name of a key");
    } else if (!HasKey(*section, key.text)) {
      errors_.Add(origin, full, UnknownKey(*section, key.text));
    } else if (const auto [before, is_new] = lines_.try_emplace(full, key.line); !is_new) {
      errors_.Add(origin, full, absl::StrCat("key given twice, first on line ", before->second));
    } else {
      values_.push_back({full, value, origin});
    }
  }
}

void ConfigReader::ReadOverrides() {
  for (int i = 0; i < static_cast<int>(overrides_.size()); ++i) {
    ReadOverride(i);
  }
}

void ConfigReader::ReadOverride(int index) {
  const std::string& text = overrides_[static_cast<size_t>(index)];
  const Origin origin{.override_index = index};
  const size_t equals = text.find('=');
  const std::string full = text.substr(0, equals);
  const auto [section_name, key] = SplitKey(full);
  if (equals == std::string::npos || key.empty()) {
    const std::string hint = key.empty() ? SameKeyElsewhere(section_name) : "";
    errors_.Add(origin, full, absl::StrCat("expected section.key=value", DidYouMean(hint)));
    return;
  }
  const Section* section = FindSection(section_name);
  if (section == nullptr || !HasKey(*section, key)) {
    errors_.Add(origin, full, section == nullptr ? UnknownSection(section_name) : UnknownKey(*section, key));
    return;
  }
  YamlTree tree = ParseYaml(text.substr(equals + 1));
  if (equals + 1 == text.size()) {  // "train.init_from=" means the empty string, which in a file needs its quotes
    tree.root.kind = YamlNode::Kind::kScalar;
    tree.root.quoted = true;
  }
  if (tree.problems.empty() && HasComment(tree.root, text.substr(equals + 1))) {
    tree.problems.push_back({0, "YAML takes # and what follows for a comment; write the value in quotes"});
  }
  for (const YamlProblem& problem : tree.problems) {
    errors_.Add(origin, full, problem.message);
  }
  if (tree.problems.empty()) {
    values_.push_back({full, std::move(tree.root), origin});
  } else {
    failed_.insert(full);
  }
}

const Section* ConfigReader::FindSection(const std::string& name) const {
  const auto found = std::find_if(table_.begin(), table_.end(), [&](const Section& s) { return s.name == name; });
  return found == table_.end() ? nullptr : &*found;
}

std::string ConfigReader::SameKeyElsewhere(const std::string& word) const {
  for (const Section& section : table_) {
    if (HasKey(section, word)) return Join(section.name, word);
  }
  return "";
}

std::string ConfigReader::UnknownSection(const std::string& word) const {
  std::vector<std::string> names;
  for (const Section& section : table_) {
    names.push_back(section.name);
  }
  std::string hint = Nearest(word, names);
  if (hint.empty()) hint = SameKeyElsewhere(word);
  return absl::StrCat("unknown section", hint.empty() ? "; there are " + absl::StrJoin(names, ", ") : DidYouMean(hint));
}

std::string ConfigReader::UnknownKey(const Section& section, const std::string& word) const {
  // The very same word in another section is a better guess than a similar one in this.
  std::string hint = SameKeyElsewhere(word);
  if (hint.empty()) hint = Nearest(word, section.Keys());
  return "unknown key" + DidYouMean(hint);
}

absl::StatusOr<Config> ConfigReader::Finish(const ModelSources& models, Keeper keeper) {
  absl::Status initial_status;
  if (models.initial_model != nullptr && complete_) {
    auto initial = models.initial_model(InitFrom());
    initial_status = initial.status();
    if (initial.ok()) initial_ = *std::move(initial);
  }
  Config config = Defaults();
  ApplyValues(ConfigTable(&config, FamilyNames()));
  if (complete_ && initial_status.ok()) {  // of half a file nobody knows what the other half says
    CheckRequired();
    CheckAgainstInitialModel(config.model);
    Report(ValidateConfig(config));
    ModelConfig preset = {.family = config.model.family};
    ApplyFamilyPreset(&preset);
    if (keeper == Keeper::kUser) Report(UnusedKeys(config, preset));
  }
  if (!errors_.empty()) return errors_.ToStatus();
  RETURN_IF_ERROR(initial_status);
  ResolveDerived(&config.model);
  if (models.check_parameters != nullptr) Report(models.check_parameters(config));
  if (!errors_.empty()) return errors_.ToStatus();
  return config;
}

std::string ConfigReader::InitFrom() const {
  std::string init_from;
  for (const Value& value : values_) {
    if (value.key == kInitFromKey && value.node.kind == YamlNode::Kind::kScalar) init_from = value.node.text;
  }
  return init_from;
}

Config ConfigReader::Defaults() const {
  Config config;
  if (initial_.has_value()) {
    config.model = initial_->model;
    if (!initial_->tokenizer.empty()) config.data.tokenizer = initial_->tokenizer;
  }
  const std::string before = config.model.family;
  for (const Section& section : ConfigTable(&config, FamilyNames())) {
    for (const Field& field : section.fields) {
      if (Join(section.name, field.key) != kFamilyKey) continue;
      for (const Value& value : values_) {
        if (value.key == kFamilyKey) SetField(value.node, field);  // errors are reported by ApplyValues
      }
    }
  }
  // The initial model's own family presets nothing: a Llama may have tied embeddings.
  if (!initial_.has_value() || config.model.family != before) ApplyFamilyPreset(&config.model);
  return config;
}

void ConfigReader::ApplyValues(const std::vector<Section>& table) {
  std::map<std::string, const Field*> fields;
  for (const Section& section : table) {
    for (const Field& field : section.fields) {
      fields.emplace(Join(section.name, field.key), &field);
    }
  }
  for (const Value& value : values_) {
    const std::string problem = SetField(value.node, *fields.at(value.key));
    if (problem.empty()) continue;
    errors_.Add(value.origin, value.key, problem);
    failed_.insert(value.key);
  }
}

void ConfigReader::CheckRequired() {
  for (const Section& section : table_) {
    if (section.name == kModel && initial_.has_value()) continue;
    for (const Field& field : section.fields) {
      const std::string full = Join(section.name, field.key);
      if (!field.required || IsGiven(full) || failed_.contains(full)) continue;
      if (full == kStepsKey && IsGiven(kEpochsKey)) continue;
      const auto line = lines_.find(section.name);
      errors_.Add({.line = line == lines_.end() ? 0 : line->second}, full, "required key is missing");
      failed_.insert(full);
    }
  }
}

void ConfigReader::CheckAgainstInitialModel(ModelConfig model) {
  if (!initial_.has_value() || failed_.contains(kFamilyKey)) return;
  ResolveDerived(&model);
  for (const ModelDifference& difference : ArithmeticDifferences(model, initial_->model)) {
    const std::string key = Join(kModel, difference.key);
    const bool bias_begins = difference.key == "router_bias" && model.router_bias;
    if (failed_.contains(key) || bias_begins) continue;
    const Origin origin = OriginOf({key, kFamilyKey});
    // Of an override the error has the text, which names another key if the value follows from the family.
    const bool is_named = origin.override_index < 0 || OriginOf({key}).override_index >= 0;
    const bool by_family = model.family != initial_->model.family && !IsGiven(key);
    errors_.Add(origin, key,
                absl::StrCat(is_named ? "" : key + ": ", difference.ours, ", but ", difference.theirs, " in ",
                             initial_->file, ", whose weights the run starts from; leave ",
                             by_family ? kFamilyKey : "the key", " out to take that value"));
    failed_.insert(key);
  }
}

bool ConfigReader::IsGiven(absl::string_view key) const {
  return std::any_of(values_.begin(), values_.end(), [&](const Value& value) { return value.key == key; });
}

Origin ConfigReader::OriginOf(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    Origin origin;
    for (const Value& value : values_) {
      if (value.key == key) origin = value.origin;
    }
    if (origin.line > 0 || origin.override_index >= 0) return origin;
  }
  return {};
}

void ConfigReader::Report(const std::vector<Violation>& violations) {
  for (const Violation& violation : violations) {
    const auto failed = [&](const std::string& key) { return failed_.contains(key); };
    if (std::any_of(violation.keys.begin(), violation.keys.end(), failed)) continue;
    // Blame the value given last: a --set over a file that was right before it; else the likeliest key of the file.
    const Value* blamed = nullptr;
    for (const std::string& key : violation.keys) {
      for (const Value& value : values_) {
        const bool later = blamed == nullptr || value.origin.override_index > blamed->origin.override_index;
        if (value.key == key && later) blamed = &value;
      }
    }
    const std::string& key = blamed == nullptr ? violation.keys.front() : blamed->key;
    errors_.Add(blamed == nullptr ? Origin{} : blamed->origin, key, violation.message);
  }
}

}  // namespace holdfast
