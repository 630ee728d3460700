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
#include "models/families/huggingface.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

constexpr double kLeastFactor = 1e-20;  // of a learning rate, so that no product with one is subnormal

/// Whether query, key and value are one tensor in the files of the model.
bool HasOneQkv(const ModelConfig& model) {
  const ParameterLayout layout = TransformerLayout(model);
  const int qkv = layout.Find("blocks.0.attention.qkv.weight");
  const TensorMap map = HuggingFaceTensorMap(model, layout);
  return std::count_if(map.begin(), map.end(), [&](const ExternalTensor& t) { return t.parameter == qkv; }) == 1;
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

absl::Status CheckPatterns(const std::string& key, const std::vector<std::string>& patterns,
                           const ParameterLayout& layout) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : layout.parameters()) names.push_back(spec.name);
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& n) { return MatchesGlob(pattern, n); }))
      continue;
    const std::string nearest = Nearest(pattern, names);
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": '", pattern, "' matches no parameter",
                     nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)"),
                     "; `holdfast validate` lists their names, * stands for any characters"));
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ParameterLayout& layout, const std::function<bool(const ParameterSpec&)>& frozen) {
  std::map<std::string, bool> of_layer;
  for (const ParameterSpec& spec : layout.parameters()) {
    const std::string all = OfAllExperts(spec.name);
    if (all.empty()) continue;
    const auto [first, added] = of_layer.emplace(all, frozen(spec));
    if (added || first->second == frozen(spec)) continue;
    return absl::InvalidArgumentError(absl::StrCat("train.freeze, train.only: of ", all,
                                                   " some experts would be frozen and some trained; name all or none"));
  }
  return absl::OkStatus();
}

/// By how many layers the parameter is below the head.
uint64_t LayersBelowHead(const std::string& name, int64_t num_layers) {
  if (absl::StartsWith(name, "embedding.")) return static_cast<uint64_t>(num_layers) + 1;
  const std::vector<std::string> words = absl::StrSplit(name, '.');
  int64_t block = 0;
  if (words.size() < 2 || words[0] != "blocks" || !absl::SimpleAtoi(words[1], &block)) return 0;
  return static_cast<uint64_t>(num_layers - block);
}

}  // namespace

absl::StatusOr<LoraOptions> LoraOptionsOf(const Config& config) {
  const LoraConfig& lora = config.lora;
  if (lora.rank == 0) return LoraOptions();
  const auto wants = [&](const char* layer) {
    return std::find(lora.targets.begin(), lora.targets.end(), layer) != lora.targets.end();
  };
  const auto rank = static_cast<double>(lora.rank);
  const bool attention = wants("attention"), mlp = wants("mlp"),
             gated = config.model.activation == ActivationKind::kSwiglu;
  LoraOptions options{.rank = lora.rank,
                      .scale = static_cast<float>(lora.alpha / (lora.rslora ? std::sqrt(rank) : rank)),
                      .dropout = static_cast<float>(lora.dropout),
                      .query = attention || wants("q_proj"),
                      .key = attention || wants("k_proj"),
                      .value = attention || wants("v_proj"),
                      .output = attention || wants("o_proj"),
                      .gate = gated && (mlp || wants("gate_proj")),
                      .up = mlp || wants("up_proj"),
                      .down = mlp || wants("down_proj"),
                      .experts = wants("experts"),
                      .router = wants("router"),
                      .shared_expert = wants("shared_expert"),
                      .shared_expert_gate = wants("shared_expert_gate"),
                      .one_qkv = HasOneQkv(config.model)};
  if (options.one_qkv && (options.query != options.key || options.query != options.value)) {
    return absl::InvalidArgumentError(
        "lora.targets: query, key and value are one layer of this model: name q_proj, k_proj and v_proj, or none");
  }
  if (wants("gate_proj") && !gated) {
    return absl::InvalidArgumentError("lora.targets: this model has no gate_proj");
  }
  const bool mlp_wanted = options.gate || options.up || options.down;
  if (mlp_wanted && config.model.NumExpertLayers() == config.model.num_layers) {
    return absl::InvalidArgumentError(
        "lora.targets: every MLP of this model is a mixture of experts; name experts, router or shared_expert");
  }
  const auto refuse = [](const char* target, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("lora.targets: ", target, ": this model has no ", what));
  };
  if (options.experts && config.model.NumExpertLayers() == 0) return refuse("experts", "experts");
  if (options.router && config.model.NumExpertLayers() == 0) return refuse("router", "experts");
  const bool shared = config.model.NumExpertLayers() > 0 && config.model.shared_expert_intermediate_size > 0;
  if (options.shared_expert && !shared) return refuse("shared_expert", "shared expert");
  if (options.shared_expert_gate && !(shared && config.model.shared_expert_gate)) {
    return refuse("shared_expert_gate", "shared expert with a gate");
  }
  return options;
}

absl::StatusOr<std::function<bool(const ParameterSpec&)>> FrozenOf(const Config& config) {
  if (config.lora.rank > 0) return [](const ParameterSpec& spec) { return !spec.adapter; };
  const std::vector<std::string>&freeze = config.train.freeze, &only = config.train.only;
  if (freeze.empty() && only.empty()) return nullptr;
  const ParameterLayout layout = TransformerLayout(config.model);
  RETURN_IF_ERROR(CheckPatterns("train.freeze", freeze, layout));
  RETURN_IF_ERROR(CheckPatterns("train.only", only, layout));
  std::function<bool(const ParameterSpec&)> frozen = [freeze, only](const ParameterSpec& spec) {
    return MatchesAny(freeze, spec.name) || (!only.empty() && !MatchesAny(only, spec.name));
  };
  RETURN_IF_ERROR(CheckExperts(layout, frozen));
  const bool trained =
      std::any_of(layout.parameters().begin(), layout.parameters().end(),
                  [&](const ParameterSpec& spec) { return !frozen(spec) && !spec.balance.has_value(); });
  if (!trained) return absl::InvalidArgumentError("train.freeze, train.only: nothing is left that could be trained");
  return frozen;
}

absl::StatusOr<std::function<void(ParameterSpec&)>> RatesOf(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (!optimizer.has_groups()) return nullptr;
  std::vector<LrFactor> factors;
  std::vector<std::string> patterns;
  for (const std::string& item : optimizer.lr_factors) {
    factors.push_back(*ParseLrFactor(item));  // ValidateConfig has seen it
    patterns.push_back(factors.back().pattern);
  }
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  const ParameterLayout layout = TransformerLayout(config.model, lora);
  RETURN_IF_ERROR(CheckPatterns("optimizer.lr_factors", patterns, layout));
  RETURN_IF_ERROR(CheckPatterns("optimizer.no_decay", optimizer.no_decay, layout));
  const auto factor_of = [factors, layer_decay = optimizer.layer_decay,
                          num_layers = config.model.num_layers](const std::string& name) {
    const auto first =
        std::find_if(factors.begin(), factors.end(), [&](const LrFactor& f) { return MatchesGlob(f.pattern, name); });
    const double factor = first == factors.end() ? 1.0 : first->factor;
    return factor * portable::IntegerPower(layer_decay, LayersBelowHead(name, num_layers));
  };
  ASSIGN_OR_RETURN(const auto frozen, FrozenOf(config));
  for (const ParameterSpec& spec : layout.parameters()) {
    const double factor = factor_of(spec.name);
    if (factor == 0 || factor >= kLeastFactor || (frozen != nullptr && frozen(spec))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.lr_factors, optimizer.layer_decay: the learning rate of ", spec.name, " would be ",
                     factor, " times the others', less than ", kLeastFactor,
                     ": set it to 0, or freeze it (train.freeze), if it is not to learn"));
  }
  return [factor_of, no_decay = optimizer.no_decay](ParameterSpec& spec) {
    spec.lr_factor *= static_cast<float>(factor_of(spec.name));
    spec.decay = spec.decay && !MatchesAny(no_decay, spec.name);
  };
}

}  // namespace holdfast
