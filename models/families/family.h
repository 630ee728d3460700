#pragma once
// What is particular to one family of models: its preset of a config, its config.json both ways, its tensors' names,
// its FLOPs. Families are constant objects without state (families.h).

#include <nlohmann/json.hpp>
#include <string>

#include "framework/config/config.h"
#include "models/families/config_fields.h"
#include "models/families/tensor_names.h"

namespace holdfast {

/// Of which layers a config.json of a family can say that they have the window.
enum class Windows { kNone, kAllLayers, kSomeLayers };

class Family {
 public:
  virtual ~Family() = default;

  /// The value of model.family.
  virtual const char* name() const = 0;
  /// Of a config.json.
  virtual const char* model_type() const { return name(); }
  /// Of whose keys those count that FamilyPreset names.
  virtual ModelConfig preset() const = 0;
  /// The family that is this one with experts, or null.
  virtual const Family* with_experts() const { return nullptr; }

  virtual Windows windows() const = 0;
  /// Whether its files say attention_sinks, expert_bias and swiglu_limit.
  virtual bool says_sinks_and_expert_biases() const { return false; }

  /// Empty, or a key of `model` ("qk_norm") whose value in a resolved config no config.json of this family can say.
  std::string InexpressibleKey(const ModelConfig& config) const;

  /// Empty, or why the newest transformers that was tried refuses the config.json of an expressible config.
  virtual std::string RefusedBecause(const ModelConfig&) const { return ""; }

  /// Reads the keys of a config.json into a resolved config, keeping problems in `in`. Keys that are neither read nor
  /// ignored here or in ConfigFields::CheckGeneric are refused afterwards.
  virtual ModelConfig ReadConfig(ConfigFields& in) const = 0;
  /// The config.json of an expressible config, without special tokens.
  virtual nlohmann::ordered_json WriteConfig(const ModelConfig& config) const = 0;

  /// What its tensors are called in files.
  virtual TensorNames Names(const ModelConfig& config) const = 0;
  /// Whether a tensor that files of such a model may hold is no parameter (attention masks, rotary tables).
  virtual bool IsIgnorable(const ModelConfig& config, const std::string& tensor) const = 0;

  /// FLOPs per token that model FLOPs utilisation counts; see FlopsPerTokenOf in plan.h.
  virtual double FlopsPerToken(const ModelConfig& config, int64_t sequence) const;

 protected:
  /// As InexpressibleKey, of all keys but those that follow from windows(), and those of
  /// says_sinks_and_expert_biases() where it is false.
  virtual std::string Inexpressible(const ModelConfig& config) const = 0;
};

}  // namespace holdfast
