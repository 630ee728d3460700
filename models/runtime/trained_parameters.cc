#include "models/runtime/trained_parameters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/glob.h"
#include "framework/base/status.h"
#include "framework/config/suggest.h"
#include "framework/config/validate.h"
#include "kernels/portable_math.h"
#include "models/families/families.h"
#include "models/families/huggingface.h"
#include "models/plan.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

constexpr double kLeastFactor = 1e-20;  // of a learning rate, so that no product with one is subnormal

/// Whether the model has this parameter, and its files have it in one tensor.
bool IsOneTensor(const ModelConfig& model, const char* name) {
  const ParameterLayout layout = TransformerLayout(model);
  const int parameter = layout.Find(name);
  const TensorMap map = HuggingFaceTensorMap(model, layout);
  return std::count_if(map.begin(), map.end(), [&](const ExternalTensor& t) { return t.parameter == parameter; }) == 1;
}

bool MatchesAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesGlob(pattern, name); });
}

/// "blocks.3.experts.5.down.weight" -> "blocks.3.experts.*.down.weight": what all experts of a layer have in common.
/// Empty if it is of no expert.
std::string OfAllExperts(const std::string& name) {
  std::vector<std::string> words = absl::StrSplit(name, '.');
  int64_t expert = 0;
  if (words.size() < 5 || words[2] != "experts" || !absl::SimpleAtoi(words[3], &expert)) return "";
  words[3].assign(1, '*');
  return absl::StrJoin(words, ".");
}

absl::Status FirstOf(const std::vector<Violation>& violations) {
  if (violations.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(violations[0].keys, ", "), ": ", violations[0].message));
}

/// Those that match no parameter.
std::vector<Violation> PatternViolations(const std::string& key, const std::vector<std::string>& patterns,
                                         const ParameterLayout& layout) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : layout.parameters()) names.push_back(spec.name);
  std::vector<Violation> violations;
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& n) { return MatchesGlob(pattern, n); }))
      continue;
    const std::string nearest = Nearest(pattern, names);
    violations.push_back({{key},
                          absl::StrCat("'", pattern, "' matches no parameter",
                                       nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)"),
                                       "; `holdfast validate` lists their names, * stands for any characters")});
  }
  return violations;
}

using IsFrozen = std::function<bool(const ParameterSpec&)>;

/// The first layer of which some experts are frozen and some are not.
std::vector<Violation> ExpertViolations(const ParameterLayout& layout, const IsFrozen& frozen) {
  std::map<std::string, bool> of_layer;
  for (const ParameterSpec& spec : layout.parameters()) {
    const std::string all = OfAllExperts(spec.name);
    if (all.empty()) continue;
    const auto [first, added] = of_layer.emplace(all, frozen(spec));
    if (added || first->second == frozen(spec)) continue;
    return {{{"train.freeze", "train.only"},
             absl::StrCat("of ", all, " some experts would be frozen and some trained; name all or none")}};
  }
  return {};
}

/// By how many layers the parameter is below the head.
uint64_t LayersBelowHead(const std::string& name, int64_t num_layers) {
  if (absl::StartsWith(name, "embedding.")) return static_cast<uint64_t>(num_layers) + 1;
  const std::vector<std::string> words = absl::StrSplit(name, '.');
  int64_t block = 0;
  if (words.size() < 2 || words[0] != "blocks" || !absl::SimpleAtoi(words[1], &block)) return 0;
  return static_cast<uint64_t>(num_layers - block);
}

bool Wants(const LoraConfig& lora, const char* layer) {
  return std::find(lora.targets.begin(), lora.targets.end(), layer) != lora.targets.end();
}

LoraOptions AdaptersOf(const Config& config) {
  const LoraConfig& lora = config.lora;
  if (lora.rank == 0) return {};
  const auto wants = [&](const char* layer) { return Wants(lora, layer); };
  const auto rank = static_cast<double>(lora.rank);
  const ModelConfig& model = config.model;
  const bool experts = model.NumExpertLayers() > 0, shared = experts && model.shared_expert_intermediate_size > 0;
  const bool all = wants("all-linear"), attention = all || wants("attention"),
             mlp = wants("mlp") || (all && model.NumExpertLayers() < model.num_layers);
  return {.rank = lora.rank,
          .scale = static_cast<float>(lora.alpha / (lora.rslora ? std::sqrt(rank) : rank)),
          .dropout = static_cast<float>(lora.dropout),
          .query = attention || wants("q_proj"),
          .key = attention || wants("k_proj"),
          .value = attention || wants("v_proj"),
          .output = attention || wants("o_proj"),
          .gate = model.HasMlpGate() && (mlp || wants("gate_proj")),
          .up = mlp || wants("up_proj"),
          .down = mlp || wants("down_proj"),
          .experts = wants("experts") || (all && experts),
          .router = wants("router") || (all && experts),
          .shared_expert = wants("shared_expert") || (all && shared),
          .shared_expert_gate = wants("shared_expert_gate") || (all && shared && model.shared_expert_gate),
          .one_qkv = IsOneTensor(model, "blocks.0.attention.qkv.weight"),
          // In files of Holdfast's own form they always are.
          .one_gate_up = model.HasMlpGate() &&
                         (ExactFamily(model) == nullptr || IsOneTensor(model, "blocks.0.mlp.gate_up.weight"))};
}

/// Layers that the model has not, or not by themselves.
std::vector<Violation> LoraViolations(const Config& config) {
  if (config.lora.rank == 0) return {};
  const LoraOptions options = AdaptersOf(config);
  const ModelConfig& model = config.model;
  std::vector<Violation> violations;
  const auto refuse = [&](const std::string& message) { violations.push_back({{"lora.targets"}, message}); };
  if (options.one_qkv && (options.query != options.key || options.query != options.value)) {
    refuse("query, key and value are one layer of this model: name q_proj, k_proj and v_proj, or none");
  }
  if (options.one_gate_up && options.gate != options.up) {
    refuse("gate and up are one layer of this model: name gate_proj and up_proj, or neither");
  }
  if (Wants(config.lora, "gate_proj") && !model.HasMlpGate()) refuse("this model has no gate_proj");
  const bool mlp_wanted = options.gate || options.up || options.down, has_experts = model.NumExpertLayers() > 0;
  if (mlp_wanted && model.NumExpertLayers() == model.num_layers) {
    refuse("every MLP of this model is a mixture of experts; name experts, router or shared_expert");
  }
  const bool shared = has_experts && model.shared_expert_intermediate_size > 0;
  if (options.experts && !has_experts) refuse("experts: this model has no experts");
  if (options.router && !has_experts) refuse("router: this model has no experts");
  if (options.shared_expert && !shared) refuse("shared_expert: this model has no shared expert");
  if (options.shared_expert_gate && !(shared && model.shared_expert_gate)) {
    refuse("shared_expert_gate: this model has no shared expert with a gate");
  }
  return violations;
}

bool FreezesByName(const Config& config) {
  return config.lora.rank == 0 && !(config.train.freeze.empty() && config.train.only.empty());
}

/// Null: none is.
IsFrozen FrozenByConfig(const Config& config) {
  if (config.lora.rank > 0) return [](const ParameterSpec& spec) { return !spec.adapter; };
  if (!FreezesByName(config)) return nullptr;
  return [freeze = config.train.freeze, only = config.train.only](const ParameterSpec& spec) {
    return MatchesAny(freeze, spec.name) || (!only.empty() && !MatchesAny(only, spec.name));
  };
}

std::vector<Violation> FreezeViolations(const Config& config) {
  if (!FreezesByName(config)) return {};
  const ParameterLayout layout = TransformerLayout(config.model);
  std::vector<Violation> violations = PatternViolations("train.freeze", config.train.freeze, layout);
  for (Violation& violation : PatternViolations("train.only", config.train.only, layout)) {
    violations.push_back(std::move(violation));
  }
  if (!violations.empty()) return violations;
  const IsFrozen frozen = FrozenByConfig(config);
  violations = ExpertViolations(layout, frozen);
  const bool trained =
      std::any_of(layout.parameters().begin(), layout.parameters().end(),
                  [&](const ParameterSpec& spec) { return !frozen(spec) && !spec.balance.has_value(); });
  if (!trained) violations.push_back({{"train.freeze", "train.only"}, "nothing is left that could be trained"});
  return violations;
}

/// By the name of a parameter.
std::function<double(const std::string&)> FactorsOf(const Config& config) {
  std::vector<LrFactor> factors;
  for (const std::string& item : config.optimizer.lr_factors) {
    factors.push_back(*ParseLrFactor(item));  // ValidateConfig has seen it
  }
  return [factors, layer_decay = config.optimizer.layer_decay,
          num_layers = config.model.num_layers](const std::string& name) {
    const auto first =
        std::find_if(factors.begin(), factors.end(), [&](const LrFactor& f) { return MatchesGlob(f.pattern, name); });
    const double factor = first == factors.end() ? 1.0 : first->factor;
    return factor * portable::IntegerPower(layer_decay, LayersBelowHead(name, num_layers));
  };
}

/// Patterns that match something and decide nothing. `frozen`: null if nothing is.
std::vector<Violation> UnusedFactors(const std::vector<std::string>& patterns, const ParameterLayout& layout,
                                     const IsFrozen& frozen) {
  std::vector<Violation> violations;
  std::vector<std::string> earlier;
  for (const std::string& pattern : patterns) {
    bool trained = false, counts = false, balances = false;
    for (const ParameterSpec& spec : layout.parameters()) {
      if (!MatchesGlob(pattern, spec.name) || (frozen != nullptr && frozen(spec))) continue;
      balances = balances || spec.balance.has_value();
      if (spec.balance.has_value()) continue;  // has model.router_bias_rate
      trained = true;
      counts = counts || !MatchesAny(earlier, spec.name);
    }
    if (!counts) {
      violations.push_back(
          {{"optimizer.lr_factors"},
           absl::StrCat("'", pattern, "' ",
                        trained ? "never counts: patterns before it match all that it does, and the first counts; put "
                                  "it before them"
                        : balances
                            ? "matches biases of routers, which no learning rate moves; set model.router_bias_rate"
                            : "matches only parameters that are not trained; leave it out")});
    }
    earlier.push_back(pattern);
  }
  return violations;
}

/// Of a config whose adapters and frozen parameters are right.
std::vector<Violation> RateViolations(const Config& config) {
  if (!config.optimizer.has_groups()) return {};
  const ParameterLayout layout = TransformerLayout(config.model, AdaptersOf(config));
  std::vector<std::string> patterns;
  for (const std::string& item : config.optimizer.lr_factors) patterns.push_back(ParseLrFactor(item)->pattern);
  std::vector<Violation> violations = PatternViolations("optimizer.lr_factors", patterns, layout);
  for (Violation& violation : PatternViolations("optimizer.no_decay", config.optimizer.no_decay, layout)) {
    violations.push_back(std::move(violation));
  }
  if (!violations.empty()) return violations;
  const IsFrozen frozen = FrozenByConfig(config);
  violations = UnusedFactors(patterns, layout, frozen);
  if (!violations.empty()) return violations;
  const auto factor_of = FactorsOf(config);
  for (const ParameterSpec& spec : layout.parameters()) {
    const double factor = factor_of(spec.name);
    if (factor == 0 || factor >= kLeastFactor || (frozen != nullptr && frozen(spec))) continue;
    return {{{"optimizer.lr_factors", "optimizer.layer_decay"},
             absl::StrCat("the learning rate of ", spec.name, " would be ", factor, " times the others', less than ",
                          kLeastFactor, ": set it to 0, or freeze it (train.freeze), if it is not to learn")}};
  }
  return {};
}

}  // namespace

std::vector<Violation> TrainedParameterViolations(const Config& config) {
  std::vector<Violation> violations = LoraViolations(config);
  for (Violation& violation : FreezeViolations(config)) violations.push_back(std::move(violation));
  return violations.empty() ? RateViolations(config) : violations;
}

absl::StatusOr<LoraOptions> LoraOptionsOf(const Config& config) {
  RETURN_IF_ERROR(FirstOf(LoraViolations(config)));
  return AdaptersOf(config);
}

absl::StatusOr<std::function<bool(const ParameterSpec&)>> FrozenOf(const Config& config) {
  RETURN_IF_ERROR(FirstOf(FreezeViolations(config)));
  return FrozenByConfig(config);
}

absl::StatusOr<std::function<void(ParameterSpec&)>> RatesOf(const Config& config) {
  RETURN_IF_ERROR(FirstOf(TrainedParameterViolations(config)));
  if (!config.optimizer.has_groups()) return nullptr;
  return [factor_of = FactorsOf(config), no_decay = config.optimizer.no_decay](ParameterSpec& spec) {
    spec.lr_factor *= static_cast<float>(factor_of(spec.name));
    spec.decay = spec.decay && !MatchesAny(no_decay, spec.name);
  };
}

double TrainedFlopsPerToken(const Config& config) {
  const IsFrozen frozen = FrozenByConfig(config);
  if (frozen == nullptr) return ModelFlopsPerToken(config.model, config.batch.sequence_length);
  return FlopsPerTokenOf(config.model, config.batch.sequence_length,
                         TransformerLayout(config.model, AdaptersOf(config)), frozen);
}

}  // namespace holdfast
